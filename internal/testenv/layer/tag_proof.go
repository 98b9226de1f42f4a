//go:build proof

package layer

const tag = "proof"
