package export_test

import (
	"fmt"
	"strings"
	"testing"

	"clrsnap/export"
	"clrsnap/internal/testenv/layer"
	"clrsnap/profile"
)

// ruleSource is the text of a method of the synthetic service. A hostile line tries to be markup.
const ruleSource = `    decimal Apply(Node node, decimal price)
    {
	if (node == null) return price; // </script><img src=x onerror=alert(1)>
        foreach (Rule rule in node.Rules)
            price = rule.Lines.Select(line => line.Price * rule.Factor).Aggregate(price, Math.Min, "` +
	"\x1b[31m\u202e" + `");
        return node.Next.Aggregate(price, (p, next) => Apply(next, p));
    }`

// withSource is a recording of the synthetic service with lines in one function.
func withSource(r *profile.Recording) *profile.Recording {
	s := profile.NewSources(r)
	file := s.File(profile.SourceFile{
		Name: "/src/Shop.Domain/Pricing/RuleTree.cs",
		URL:  "https://raw.example.org/shop/0123abcd/Shop.Domain/Pricing/RuleTree.cs",
		Text: []profile.Excerpt{{First: 40, Lines: strings.Split(ruleSource, "\n")}},
	})
	other := s.File(profile.SourceFile{Name: `C:\src\Shop\"><script>.cs`, URL: "javascript:alert(1)"})
	at := []int32{
		s.Line(profile.Line{File: file, Line: 44, Column: 13}),
		s.Line(profile.Line{File: file, Line: 45, Approximate: true}), s.Line(profile.Line{File: other, Line: 7}),
		s.Line(profile.Line{File: file, Line: 44, Column: 30}),
	}
	n := 0
	for i := range r.Locations {
		if l := &r.Locations[i]; strings.HasSuffix(r.Functions[l.Function].Display, "RuleTree.Apply") {
			l.Line = at[n%len(at)]
			n++
		}
	}
	return r
}

// TestPageSource: the marked function has its lines, with the shares in the recording, and the text
// around the lines. Nothing of the text is markup.
func TestPageSource(t *testing.T) {
	layer.Live(t)
	r := withSource(synthetic(20, 1))
	b := startBrowser(t)
	b.window(1600, 900, false)
	b.load(page(t, r, export.FlameOptions{}))
	if hidden := b.isHidden("source"); !hidden {
		t.Error("there are lines although no function is marked")
	}
	b.eval("clrsnap.select(clrsnap.frames().find((f) => f.name === 'RuleTree.Apply').index)", nil)
	b.picture("source")
	working := r.Select(profile.Selection{Modes: []profile.Mode{profile.CPU}, Working: true})
	all := working.Weight(profile.CPU)
	want := map[string]string{}
	for _, lines := range working.LineTotals(profile.CPU) {
		for _, l := range lines {
			number := fmt.Sprint(l.Line)
			if l.Approximate {
				number = "~" + number
			}
			want[number] = shareText(l.Self.All().Weight, all) + "|" + shareText(l.Total.All().Weight, all)
		}
	}
	var got map[string]string
	b.eval(`Object.fromEntries([...document.querySelectorAll("#source tr[data-total]")].map((row) => {
		const [line, self, total] = [...row.children].map((c) => c.textContent.replace(/\u00a0/g, " "));
		return [line, self + "|" + total];
	}))`, &got)
	if len(got) != 3 || fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("the lines have %v, want %v", got, want)
	}
	text := b.text("#source")
	for _, s := range []string{
		"/src/Shop.Domain/Pricing/RuleTree.cs", `C:\src\Shop\"><script>.cs`, "foreach (Rule rule in node.Rules)",
		"<img src=x onerror=alert(1)>", `\x1b[31m\u202e`,
	} {
		if !strings.Contains(text, s) {
			t.Errorf("there is no %s in\n%s", s, text)
		}
	}
	var links []string
	b.eval(`[...document.querySelectorAll("#source a")].map((a) => a.getAttribute("href"))`, &links)
	if len(links) != 1 || links[0] != "https://raw.example.org/shop/0123abcd/Shop.Domain/Pricing/RuleTree.cs" {
		t.Errorf("links %q", links)
	}
	b.eval("clrsnap.select(clrsnap.frames().find((f) => f.name === 'PriceEngine.Quote').index)", nil)
	if hidden := b.isHidden("source"); !hidden {
		t.Error("a function without lines has some")
	}
	b.window(390, 844, true)
	b.eval("clrsnap.select(clrsnap.frames().find((f) => f.name === 'RuleTree.Apply').index)", nil)
	b.checkFits(t)
	b.eval("document.getElementById('source').scrollIntoView()", nil)
	b.picture("source-phone")
	b.check(t)
}

func shareText(part, all int64) string {
	switch share := 100 * float64(part) / float64(all); {
	case part == 0:
		return ""
	case share < 0.05:
		return "<0.1 %"
	default:
		return fmt.Sprintf("%.1f %%", share)
	}
}

func (b *browser) isHidden(id string) (hidden bool) {
	b.tb.Helper()
	b.eval(fmt.Sprintf("document.getElementById(%q).hidden", id), &hidden)
	return hidden
}
