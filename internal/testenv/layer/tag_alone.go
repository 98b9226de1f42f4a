//go:build alone

package layer

const tag = "alone"
