package export_test

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"clrsnap/export"
	"clrsnap/internal/testenv/layer"
)

// TestPagePlumbing: a run of framework frames is one frame, with the number of its frames, until
// somebody wants to see the run. The tiers of frames beside the run do not change, and a search says
// that nothing was found there.
func TestPagePlumbing(t *testing.T) {
	layer.Live(t)
	b := startBrowser(t)
	b.window(1280, 800, false)
	b.loadFolded(page(t, synthetic(20, 1), export.FlameOptions{}))
	b.picture("plumbing")
	const name = "[pool → Kestrel → ASP.NET: "
	var fold frame
	b.eval("clrsnap.frames().find((f) => f.name.startsWith('"+name+"'))", &fold)
	if !regexp.MustCompile(`: \d+ frames\]$`).MatchString(fold.Name) {
		t.Fatalf("there is no %s", name)
	}
	folded := b.state()
	b.click(b.middle(b.frameNamed("PriceEngine.Quote").Index))
	b.stop()
	tiers := func() string { return regexp.MustCompile(`compiled .*`).FindString(b.text("#detail")) }
	want := tiers()
	if !strings.Contains(want, "tier-1") {
		t.Errorf("detail: %q", b.text("#detail"))
	}
	b.press("0")
	b.stop()
	b.eval(fmt.Sprintf("clrsnap.select(%d)", fold.Index), nil)
	if detail := b.text("#detail"); !strings.Contains(detail, fold.Name) || !strings.Contains(detail, "framework") {
		t.Errorf("detail: %q", detail)
	}
	b.eval(`document.getElementById("search").value = "ProcessRequestAsync"`, nil)
	b.eval(`document.getElementById("search").dispatchEvent(new Event("input"))`, nil)
	if found := b.text("#found"); !strings.Contains(found, "folded") {
		t.Errorf("the search says %q", found)
	}
	b.eval(`document.getElementById("plumbingButton").click()`, nil)
	if found := b.text("#found"); !strings.Contains(found, "1 function in ") {
		t.Errorf("then it says %q", found)
	}
	if s := b.state(); s.Frames <= folded.Frames || s.Weight != folded.Weight {
		t.Errorf("%d frames of %v, %d of %v when folded", s.Frames, s.Weight, folded.Frames, folded.Weight)
	}
	b.eval("clrsnap.select(clrsnap.frames().find((f) => f.name === 'PriceEngine.Quote').index)", nil)
	if got := tiers(); got != want {
		t.Errorf("%q, folded %q", got, want)
	}
	b.press("p")
	if s := b.state(); s.Frames != folded.Frames {
		t.Errorf("p leaves %d frames, want %d", s.Frames, folded.Frames)
	}
	b.check(t)
}
