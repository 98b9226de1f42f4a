package export

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"errors"
	"regexp"

	"clrsnap/profile"
)

var (
	pageStart = regexp.MustCompile(`(?i)^\s*<(!doctype\s+html|html)\b`)
	pageData  = regexp.MustCompile(`<script type="application/octet-stream" id="recording">`)
)

func isPage(all []byte) bool { return pageStart.Match(all[:min(len(all), 512)]) }

// readPage reads the recording inside one of clrsnap's flame graphs: the same bytes as a .clrsnap
// file, in base64. A page with two compared recordings gives the later recording.
func readPage(all []byte) (*profile.Recording, error) {
	at := pageData.FindIndex(all)
	if at == nil {
		return nil, errors.New("this page is not a flame graph of clrsnap: " + readable)
	}
	data, _, ok := bytes.Cut(all[at[1]:], []byte("</script>"))
	if !ok {
		return nil, errors.New("the page is truncated: its end is missing")
	}
	z, err := gzip.NewReader(base64.NewDecoder(base64.StdEncoding, bytes.NewReader(bytes.TrimSpace(data))))
	if err != nil {
		return nil, errors.New("the recording in the page is damaged")
	}
	return readDocument(newBounded(unpacked{z}, maxDocument))
}
