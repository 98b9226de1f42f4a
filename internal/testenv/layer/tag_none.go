//go:build !check && !live && !matrix && !proof

package layer

const tag = ""
