package perfevent

import (
	"os"
	"testing"
)

// The test binary starts itself as another user.
func TestMain(m *testing.M) {
	if role := os.Getenv(roleVar); role != "" {
		playRole(role)
		return
	}
	code := m.Run()
	if dir, err := targetDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}
