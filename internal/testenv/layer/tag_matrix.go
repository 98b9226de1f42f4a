//go:build matrix

package layer

const tag = "matrix"
