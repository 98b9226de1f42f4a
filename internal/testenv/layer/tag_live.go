//go:build live

package layer

const tag = "live"
