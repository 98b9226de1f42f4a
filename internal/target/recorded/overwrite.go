package recorded

import "bytes"

// Overwrite replaces every occurrence of a text in data by another text of equal length, in the encodings that
// programs keep texts in. data is a piece of memory: the text may begin before data, or end behind.
func Overwrite(data []byte, text, by string) {
	for _, encode := range []func(string) ([]byte, int){narrow, wide} {
		old, width := encode(text)
		now, _ := encode(by)
		for at := 0; ; at += len(old) {
			i := bytes.Index(data[at:], old)
			if i < 0 {
				break
			}
			at += i
			copy(data[at:], now)
		}
		overwriteCut(data, old, now, width)
	}
}

func narrow(text string) (encoded []byte, width int) { return []byte(text), 1 }

func wide(text string) (encoded []byte, width int) {
	for _, b := range []byte(text) {
		encoded = append(encoded, b, 0)
	}
	return encoded, 2
}

// overwriteCut replaces a text that begins before data or ends behind. A few characters of the text tell nothing, and
// may be another text.
func overwriteCut(data, old, now []byte, width int) {
	const few = 4
	for k := len(old) - width; k > few*width; k -= width {
		if bytes.HasSuffix(data, old[:k]) {
			copy(data[len(data)-k:], now[:k])
		}
		if tail := len(old) - k; bytes.HasPrefix(data, old[tail:]) {
			copy(data, now[tail:])
		}
	}
}
