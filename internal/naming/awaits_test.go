package naming

import "testing"

func TestShortLabel(t *testing.T) {
	for name, want := range map[string]string{
		"System.Threading.Tasks.Task.WhenAll": "Task.WhenAll", "Task.Wait": "Task.Wait", "Wait": "Wait", "": "",
	} {
		if got := shortLabel(name); got != want {
			t.Errorf("%q: %q, want %q", name, got, want)
		}
	}
}
