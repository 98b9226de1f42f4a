package dwarfline

import (
	"io"
)

// Forms of attributes (7.5.6), and GNU's forms for supplementary files.
const (
	formAddr, formBlock2, formBlock4, formData2, formData4, formData8          = 0x01, 0x03, 0x04, 0x05, 0x06, 0x07
	formString, formBlock, formBlock1, formData1, formFlag, formSdata          = 0x08, 0x09, 0x0a, 0x0b, 0x0c, 0x0d
	formStrp, formUdata, formRefAddr, formRef1, formRef2, formRef4             = 0x0e, 0x0f, 0x10, 0x11, 0x12, 0x13
	formRef8, formRefUdata, formIndirect, formSecOffset, formExprloc           = 0x14, 0x15, 0x16, 0x17, 0x18
	formFlagPresent, formStrx, formAddrx, formRefSup4, formStrpSup, formData16 = 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e
	formLineStrp, formRefSig8, formImplicitConst, formLoclistx, formRnglistx   = 0x1f, 0x20, 0x21, 0x22, 0x23
	formRefSup8, formStrx1, formStrx2, formStrx3, formStrx4                    = 0x24, 0x25, 0x26, 0x27, 0x28
	formAddrx1, formAddrx2, formAddrx3, formAddrx4                             = 0x29, 0x2a, 0x2b, 0x2c
	formGNURefAlt, formGNUStrpAlt                                              = 0x1f20, 0x1f21
)

// value is the value of an attribute: a number, a text, or where a text is.
type value struct {
	form   uint64
	number uint64
	text   string
}

// fixedSizes are the sizes of forms in bytes.
var fixedSizes = map[uint64]int{
	formData1: 1, formData2: 2, formData4: 4, formData8: 8, formFlag: 1, formRef1: 1, formRef2: 2, formRef4: 4,
	formRef8: 8, formRefSig8: 8, formRefSup4: 4, formRefSup8: 8, formStrx1: 1, formStrx2: 2, formStrx3: 3,
	formStrx4: 4, formAddrx1: 1, formAddrx2: 2, formAddrx3: 3, formAddrx4: 4, formFlagPresent: 0, formImplicitConst: 0,
}

// value reads a value. addrSize is the size of an address in bytes; 0: no addresses
// occur.
func (r *reader) value(form uint64, addrSize int) (v value, err error) {
	v.form = form
	if n, ok := fixedSizes[form]; ok {
		v.number, err = r.fixed(n)
		return v, err
	}
	switch form {
	case formStrp, formLineStrp, formSecOffset, formStrpSup, formGNURefAlt, formGNUStrpAlt, formRefAddr:
		v.number, err = r.offset()
	case formUdata, formRefUdata, formStrx, formAddrx, formLoclistx, formRnglistx:
		v.number, err = r.uleb()
	case formSdata:
		var n int64
		n, err = r.sleb()
		v.number = uint64(n)
	case formString:
		v.text, err = r.text()
	case formData16:
		err = r.skip(16)
	case formBlock, formExprloc:
		var n uint64
		if n, err = r.uleb(); err == nil {
			err = r.skip(n)
		}
	case formBlock1, formBlock2, formBlock4:
		var n uint64
		if n, err = r.fixed(map[uint64]int{formBlock1: 1, formBlock2: 2, formBlock4: 4}[form]); err == nil {
			err = r.skip(n)
		}
	case formAddr:
		if addrSize < 1 || addrSize > 8 {
			return v, malformed("an address of %d bytes", addrSize)
		}
		v.number, err = r.fixed(addrSize)
	case formIndirect:
		var real uint64
		if real, err = r.uleb(); err != nil {
			return v, err
		}
		if real == formIndirect || real == formImplicitConst {
			return v, malformed("form %#x behind another", real)
		}
		return r.value(real, addrSize)
	default:
		err = malformed("form %#x", form)
	}
	return v, err
}

// text is the text in a value, or the text that a value leads to.
func (t *Table) text(v *value) (string, error) {
	section := ""
	switch v.form {
	case formString:
		return v.text, nil
	case formLineStrp:
		section = ".debug_line_str"
	case formStrp:
		section = ".debug_str"
	default:
		return "", malformed("a name of form %#x", v.form)
	}
	s, ok := t.texts[section]
	if !ok {
		s.data, s.size, s.err = t.section(section)
		t.texts[section] = s
	}
	if s.err != nil {
		return "", s.err
	}
	if v.number >= uint64(s.size) {
		return "", malformed("a name at %#x of %s", v.number, section)
	}
	return t.reader(s.data, int64(v.number), s.size, 256).text()
}

// texts is a section with texts.
type texts struct {
	data io.ReaderAt
	size int64
	err  error
}
