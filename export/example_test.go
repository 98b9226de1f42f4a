package export_test

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"log"
	"os"
	"strings"
	"time"

	"clrsnap/export"
	"clrsnap/internal/profiletest"
	"clrsnap/profile"
)

// The file extension chooses the format.
func ExampleEncode() {
	format, ok := export.FormatOf("shop.folded")
	if !ok {
		log.Fatal("no format has this file extension")
	}
	if err := export.Encode(os.Stdout, profiletest.Example(10), format, export.Options{}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Shop.Program.Main() 100000
	// Shop.Program.Main();Shop.Tree.Visit(Node) 200000
	// Shop.Program.Main();Shop.Cache.Evict() 100000
}

func ExampleFormats() {
	for _, f := range export.Formats() {
		fmt.Println(f, f.Extension())
	}
	// Output:
	// html .html
	// clrsnap .clrsnap
	// pprof .pb.gz
	// speedscope .speedscope.json
	// folded .folded
	// trace .trace.json
	// svg .svg
}

func ExampleFlameGraph() {
	var page bytes.Buffer
	if err := export.FlameGraph(&page, profiletest.Example(10), export.FlameOptions{Title: "The shop"}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(page.String(), "<title>The shop</title>"))
	// Output:
	// true
}

func ExampleSVG() {
	var picture bytes.Buffer
	if err := export.SVG(&picture, profiletest.Example(10), export.SVGOptions{Width: 800}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.HasPrefix(picture.String(), `<svg xmlns="http://www.w3.org/2000/svg" width="800"`))
	// Output:
	// true
}

func ExampleFolded() {
	if err := export.Folded(os.Stdout, profiletest.Example(10), export.FoldedOptions{ByThread: true}); err != nil {
		log.Fatal(err)
	}
	// Output:
	// Shop (4242);Shop.Program.Main() 100000
	// Shop (4242);Shop.Program.Main();Shop.Tree.Visit(Node) 200000
	// Shop (4242);Shop.Program.Main();Shop.Cache.Evict() 100000
}

// A profile for go tool pprof can also be read back.
func ExamplePprof() {
	var file bytes.Buffer
	if err := export.Pprof(&file, profiletest.Example(10)); err != nil {
		log.Fatal(err)
	}
	r, err := export.ReadRecording(&file)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Duration(r.Weight(profile.CPU)), "of CPU time in", len(r.Samples), "different stacks")
	// Output:
	// 400ms of CPU time in 3 different stacks
}

func ExampleSpeedscope() {
	var file bytes.Buffer
	if err := export.Speedscope(&file, profiletest.Example(10)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Contains(file.String(), `"name":"Shop (4242), CPU"`))
	// Output:
	// true
}

func ExampleChromeTrace() {
	var file bytes.Buffer
	if err := export.ChromeTrace(&file, profiletest.Example(10)); err != nil {
		log.Fatal(err)
	}
	fmt.Println(strings.Count(file.String(), `"ph":"B"`), "slices")
	// Output:
	// 3 slices
}

func ExampleWriteRecording() {
	var file bytes.Buffer
	if err := export.WriteRecording(&file, profiletest.Example(10)); err != nil {
		log.Fatal(err)
	}
	z, err := gzip.NewReader(&file)
	if err != nil {
		log.Fatal(err)
	}
	start, err := io.ReadAll(io.LimitReader(z, 31))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(string(start))
	// Output:
	// {"format":"clrsnap recording",
}

// A recording can be read from any format that ReadRecording knows.
func ExampleReadRecording() {
	folded := "Main;Parse 1200\nMain;Write 300\n"
	r, err := export.ReadRecording(strings.NewReader(folded))
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(time.Duration(r.Weight(profile.CPU)))
	for _, note := range r.Notes {
		fmt.Println(note)
	}
	// Output:
	// 1.5ms
	// Folded stacks have neither units nor times: their numbers are read as microseconds of CPU time.
}
