//go:build !check && !live && !alone && !matrix && !proof

package layer

const tag = ""
