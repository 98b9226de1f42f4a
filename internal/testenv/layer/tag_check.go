//go:build check

package layer

const tag = "check"
