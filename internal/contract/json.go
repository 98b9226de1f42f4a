package contract

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
)

// versions of the JSON that FromJSON reads; the package comment has the reasons.
var versions = map[string]bool{"0": true, "2": true}

// document is the top level of the compact format (data_descriptor.md). Its
// parts are decoded one by one: their values have several forms.
type document struct {
	version                                   string
	baseline                                  string
	types, globals, contracts, subDescriptors map[string]json.RawMessage
}

// parseDocument goes by the exact names of the keys. For the fields of a struct, encoding/json would ignore case.
func parseDocument(text []byte) (doc document, err error) {
	var top map[string]json.RawMessage
	if err := json.Unmarshal(text, &top); err != nil {
		return doc, err
	}
	doc.version = scalar(top["version"])
	for key, to := range map[string]any{
		"baseline": &doc.baseline, "types": &doc.types, "globals": &doc.globals,
		"contracts": &doc.contracts, "subDescriptors": &doc.subDescriptors,
	} {
		if raw, ok := top[key]; ok {
			if err := json.Unmarshal(raw, to); err != nil {
				return doc, fmt.Errorf("%q: %w", key, err)
			}
		}
	}
	return doc, nil
}

// FromJSON parses a descriptor in the compact format. Indirect values are indexes into pointerData: the runtime's own
// descriptor has its pointer data beside it; for an embedded descriptor, the pointer data is the runtime's table
// (TableSymbol).
func FromJSON(text []byte, pointerData []uint64) (*Descriptor, error) {
	if len(text) > maxJSON {
		return nil, fmt.Errorf("%w: %d bytes of JSON", ErrFormat, len(text))
	}
	if err := checkKeys(text); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	doc, err := parseDocument(text)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFormat, err)
	}
	if !versions[doc.version] {
		return nil, &UnknownFormatError{
			Detail: fmt.Sprintf("the format has version %q, clrsnap reads 0 and 2", doc.version),
			Remedy: "update clrsnap, or the runtime if it is a preview",
		}
	}
	// Baselines would be named layouts that the descriptor only amends; no release of the runtime uses a baseline.
	if doc.baseline != "" && doc.baseline != "empty" {
		return nil, &UnknownFormatError{
			Detail: fmt.Sprintf("it builds on the baseline %q, which this clrsnap does not have", doc.baseline),
			Remedy: "update clrsnap",
		}
	}
	return doc.descriptor(pointerData)
}

func (doc *document) descriptor(pointerData []uint64) (*Descriptor, error) {
	d := &Descriptor{
		Types:     make(map[string]Type, len(doc.types)),
		Contracts: make(map[string]Version, len(doc.contracts)),
	}
	for name, raw := range doc.types {
		t, err := parseType(raw)
		if err != nil {
			return nil, fmt.Errorf("%w: type %q: %w", ErrFormat, name, err)
		}
		d.Types[name] = t
	}
	for name, raw := range doc.contracts {
		v := scalar(raw)
		if v == "" {
			return nil, fmt.Errorf("%w: contract %q has no version", ErrFormat, name)
		}
		d.Contracts[name] = Version(v)
	}
	var err error
	if d.Globals, err = parseGlobals(doc.globals, pointerData); err != nil {
		return nil, err
	}
	d.SubDescriptors, err = parseGlobals(doc.subDescriptors, pointerData)
	return d, err
}

// checkKeys refuses an object with a key twice: either choice would be a guess.
func checkKeys(text []byte) error {
	dec := json.NewDecoder(bytes.NewReader(text))
	var open []map[string]bool // keys of the objects around; nil for an array
	wantKey := false
	for {
		tok, err := dec.Token()
		if err != nil {
			if dec.InputOffset() >= int64(len(bytes.TrimRight(text, " \t\r\n"))) && len(open) == 0 {
				return nil
			}
			return err
		}
		switch tok {
		case json.Delim('{'):
			open, wantKey = append(open, map[string]bool{}), true
			continue
		case json.Delim('['):
			open, wantKey = append(open, nil), false
			continue
		case json.Delim('}'), json.Delim(']'):
			open = open[:len(open)-1]
		default:
			if wantKey {
				keys, key := open[len(open)-1], tok.(string)
				if keys[key] {
					return fmt.Errorf("the key %q appears twice", key)
				}
				keys[key], wantKey = true, false
				continue
			}
		}
		wantKey = len(open) > 0 && open[len(open)-1] != nil
	}
}

// scalar is a JSON number or string as text; "" for anything else.
func scalar(raw json.RawMessage) string {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 {
		return ""
	}
	switch c := raw[0]; {
	case c == '"':
		var s string
		if json.Unmarshal(raw, &s) != nil {
			return ""
		}
		return s
	case c == '-' || c >= '0' && c <= '9':
		return string(raw)
	}
	return ""
}

func parseType(raw json.RawMessage) (Type, error) {
	var fields map[string]json.RawMessage
	if err := json.Unmarshal(raw, &fields); err != nil {
		return Type{}, err
	}
	t := Type{Fields: make(map[string]Field, len(fields))}
	for name, raw := range fields {
		f, err := parseField(raw)
		if err != nil {
			return t, fmt.Errorf("field %q: %w", name, err)
		}
		if name == "!" { // the size of the whole, in the compact format
			t.Size, t.HasSize = f.Offset, true
			continue
		}
		t.Fields[name] = f
	}
	return t, nil
}

// parseField takes offset and [offset, "type"].
func parseField(raw json.RawMessage) (Field, error) {
	var pair []json.RawMessage
	var f Field
	number := raw
	if json.Unmarshal(raw, &pair) == nil {
		if len(pair) != 2 || json.Unmarshal(pair[1], &f.Type) != nil {
			return f, fmt.Errorf("%s is neither an offset nor an offset with a type", clip(raw))
		}
		number = pair[0]
	}
	n, err := strconv.ParseUint(string(bytes.TrimSpace(number)), 10, 32)
	if err != nil || n >= maxOffset {
		return f, fmt.Errorf("%s is not an offset below %d", clip(number), maxOffset)
	}
	f.Offset = uint32(n)
	return f, nil
}

func parseGlobals(in map[string]json.RawMessage, pointers []uint64) (map[string]Global, error) {
	out := make(map[string]Global, len(in))
	for name, raw := range in {
		g, err := parseGlobal(raw, pointers)
		if err != nil {
			return nil, fmt.Errorf("%w: global %q: %w", ErrFormat, name, err)
		}
		out[name] = g
	}
	return out, nil
}

// parseGlobal takes value, [index], [value, "type"] and [[index], "type"].
func parseGlobal(raw json.RawMessage, pointers []uint64) (g Global, err error) {
	var list []json.RawMessage
	if json.Unmarshal(raw, &list) != nil {
		return directGlobal(raw, "")
	}
	switch len(list) {
	case 1:
		return indirectGlobal(list[0], "", pointers)
	case 2:
		var typ string
		if err := json.Unmarshal(list[1], &typ); err != nil {
			return g, fmt.Errorf("its type is %s", clip(list[1]))
		}
		var inner []json.RawMessage
		if json.Unmarshal(list[0], &inner) != nil {
			return directGlobal(list[0], typ)
		}
		if len(inner) == 1 {
			return indirectGlobal(inner[0], typ, pointers)
		}
	}
	return g, fmt.Errorf("%s is not a value", clip(raw))
}

func directGlobal(raw json.RawMessage, typ string) (Global, error) {
	g := Global{Type: typ, Text: scalar(raw)}
	if g.Text == "" && !bytes.Equal(bytes.TrimSpace(raw), []byte(`""`)) {
		return g, fmt.Errorf("%s is not a value", clip(raw))
	}
	if typ != "string" {
		g.Value, g.Number = number(g.Text)
	}
	return g, nil
}

func indirectGlobal(raw json.RawMessage, typ string, pointers []uint64) (Global, error) {
	i, ok := number(scalar(raw))
	if !ok || i >= uint64(len(pointers)) {
		return Global{}, fmt.Errorf("it refers to number %s of %d pointers", clip(raw), len(pointers))
	}
	return Global{Type: typ, Value: pointers[i], Number: true, Indirect: true}, nil
}

// number takes decimal and hexadecimal integers, signed or not, as data_descriptor.md allows. Negative integers keep
// their bits.
func number(s string) (uint64, bool) {
	digits, negative := strings.CutPrefix(s, "-")
	base := 10
	if len(digits) > 2 && digits[0] == '0' && digits[1]|0x20 == 'x' {
		digits, base = digits[2:], 16
	}
	v, err := strconv.ParseUint(digits, base, 64)
	if err != nil || negative && v > 1<<63 {
		return 0, false
	}
	if negative {
		v = -v
	}
	return v, true
}

// clip keeps hostile text out of messages.
func clip(raw []byte) string {
	if len(raw) > 40 {
		return fmt.Sprintf("%q…", raw[:40])
	}
	return fmt.Sprintf("%q", raw)
}
