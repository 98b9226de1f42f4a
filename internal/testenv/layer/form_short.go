//go:build !full

package layer

const isFull = false
