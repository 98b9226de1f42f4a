package export

import "testing"

// TestTraceCategory: a trace separates categories by commas, so a module has none in its name.
func TestTraceCategory(t *testing.T) {
	got := traceNameOf(`a"b`, "managed", "Shop,v2.dll")
	if got.text != `"a\"b"` || got.rest != `,"cat":"managed,Shop_v2.dll"` {
		t.Errorf("%s %s", got.text, got.rest)
	}
}
