package pdb

import (
	"strings"
	"unicode/utf8"

	"clrsnap/internal/ecma335"
	"clrsnap/internal/pe"
)

// maxDocumentName bounds a document's name, in bytes: PATH_MAX of Linux.
const maxDocumentName = 4096

// A Document is a source file.
type Document struct {
	Name          string // as the compiler wrote it: a path on the building machine; hostile
	HashAlgorithm [16]byte
	Hash          []byte // part of the PDB
	Language      [16]byte
}

// Languages of Document.
var (
	LanguageCSharp      = guid("3f5162f8-07c6-11d3-9053-00c04fa302a1")
	LanguageVisualBasic = guid("3a12d0b8-c26c-11d0-b442-00a0244a1dd2")
	LanguageFSharp      = guid("ab4f38c9-b6e6-43ba-be3b-58080b2ccce3")
)

// algorithmNames are the algorithms of Document. The specification has the first two, Roslyn's
// SourceHashAlgorithms.cs all.
var algorithmNames = map[[16]byte]string{
	guid("ff1816ec-aa5e-4d10-87f7-6f4963833460"): "SHA1",
	guid("8829d00f-11b8-4213-878b-770e8597ac16"): "SHA256",
	guid("d99cfeb1-8c43-444a-8a6c-b61269d2a0bf"): "SHA384",
	guid("ef2d1afc-6550-46d6-b14b-d70afe9a5566"): "SHA512",
}

// Is reports whether content is the document's text. known is false if the PDB has no hash of the text.
func (d Document) Is(content []byte) (same, known bool) {
	algorithm, sum := d.Checksum()
	if algorithm == "" {
		return false, false
	}
	return SameText(content, algorithm, sum), true
}

// Checksum returns the hash of the document's text, and the algorithm's name for SameText; "": unknown.
func (d Document) Checksum() (algorithm string, sum []byte) {
	if len(d.Hash) == 0 {
		return "", nil
	}
	return algorithmNames[d.HashAlgorithm], d.Hash
}

// Documents is the number of documents. Documents are counted from 1.
func (f *File) Documents() int32 { return int32(f.md.Rows(ecma335.TableDocument)) }

// Document returns document i.
func (f *File) Document(i int32) (d Document, err error) {
	if i < 1 || i > f.Documents() {
		return d, malformed("no document %d of %d", i, f.Documents())
	}
	var cells [4]uint32
	for col := range cells {
		if cells[col], err = f.md.Cell(ecma335.TableDocument, uint32(i), col); err != nil {
			return d, err
		}
	}
	if d.Name, err = f.documentName(cells[0]); err != nil {
		return d, err
	}
	if d.HashAlgorithm, err = f.optionalGUID(cells[1]); err != nil {
		return d, err
	}
	if d.Hash, err = f.md.Blob(cells[2]); err != nil {
		return d, err
	}
	d.Language, err = f.optionalGUID(cells[3])
	return d, err
}

func (f *File) optionalGUID(i uint32) ([16]byte, error) {
	if i == 0 {
		return [16]byte{}, nil
	}
	return f.md.GUID(i)
}

// documentName joins a name's parts: the separator, a byte (0: no separator), and the blobs
// with the parts.
func (f *File) documentName(blob uint32) (string, error) {
	b, err := f.md.Blob(blob)
	if err != nil {
		return "", err
	}
	r := ecma335.NewBlobReader(b)
	separator, err := r.Byte()
	if err != nil {
		return "", err
	}
	if separator >= utf8.RuneSelf { // the specification allows such a separator, System.Reflection.Metadata does not
		return "", malformed("a document's name with separator %#x", separator)
	}
	var name []byte
	for first := true; r.Len() > 0; first = false {
		at, err := r.Uint()
		if err != nil {
			return "", err
		}
		part, err := f.md.Blob(at)
		if err != nil {
			return "", err
		}
		if !first && separator != 0 {
			name = append(name, separator)
		}
		if len(name)+len(part) > maxDocumentName {
			return "", malformed("a document's name of more than %d bytes", maxDocumentName)
		}
		name = append(name, part...)
	}
	return strings.ToValidUTF8(string(name), "\uFFFD"), nil
}

// MaxSource bounds an embedded source file, in bytes.
const MaxSource = 16 << 20

// HasSource reports whether the PDB contains the text of a document.
func (f *File) HasSource(document int32) bool {
	return document > 0 && f.indexed().sources[uint32(document)] != 0
}

// SourceSize returns how many bytes the text of a document has, by the PDB's word; 0: the PDB does not contain the
// text.
func (f *File) SourceSize(document int32) int {
	b, size, err := f.packedSource(document)
	switch {
	case err != nil:
		return 0
	case size == 0:
		return len(b)
	}
	return int(size)
}

// packedSource returns the text of a document as the PDB has it, and the size of the unpacked text; 0: the text is not
// packed.
func (f *File) packedSource(document int32) (b []byte, size uint32, err error) {
	if !f.HasSource(document) {
		return nil, 0, nil
	}
	if b, err = f.md.Blob(f.indexed().sources[uint32(document)]); err != nil {
		return nil, 0, err
	}
	r := ecma335.NewBlobReader(b)
	if size, err = r.Uint32(); err != nil {
		return nil, 0, err
	}
	return b[4:], size, nil
}

// Source returns the text of a document; false: the PDB does not contain the text.
func (f *File) Source(document int32) (content []byte, ok bool, err error) {
	b, size, err := f.packedSource(document)
	if err != nil || b == nil {
		return nil, false, err
	}
	switch {
	case size == 0 && len(b) <= MaxSource:
		return b, true, nil
	case size == 0 || size > MaxSource:
		return nil, false, malformed("embedded source of format %#x in %d bytes", size, len(b))
	}
	if content, err = pe.Inflate(b, int(size)); err != nil {
		return nil, false, malformed("embedded source: %v", err)
	}
	return content, true, nil
}
