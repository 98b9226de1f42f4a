package perfevent

import (
	"os"
	"testing"

	"clrsnap/internal/testenv/role"
)

func TestMain(m *testing.M) {
	role.Play()
	code := m.Run()
	if dir, err := targetDir(); err == nil {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}
