package ecma335

import (
	"errors"
	"fmt"
)

// Errors that every accessor's error wraps.
var (
	// ErrMalformed is metadata that breaks the format's rules.
	ErrMalformed = errors.New("malformed CLI metadata")
	// ErrNoRow is a token or row number without a row in the metadata.
	ErrNoRow = errors.New("no such metadata row")
)

func malformed(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrMalformed, fmt.Sprintf(format, args...))
}

// Table is the number of a metadata table (II.22).
type Table uint8

// The tables of II.22, the pointer tables of uncompressed metadata, and the
// tables of a portable PDB.
const (
	TableModule                 Table = 0x00
	TableTypeRef                Table = 0x01
	TableTypeDef                Table = 0x02
	TableFieldPtr               Table = 0x03
	TableField                  Table = 0x04
	TableMethodPtr              Table = 0x05
	TableMethodDef              Table = 0x06
	TableParamPtr               Table = 0x07
	TableParam                  Table = 0x08
	TableInterfaceImpl          Table = 0x09
	TableMemberRef              Table = 0x0a
	TableConstant               Table = 0x0b
	TableCustomAttribute        Table = 0x0c
	TableFieldMarshal           Table = 0x0d
	TableDeclSecurity           Table = 0x0e
	TableClassLayout            Table = 0x0f
	TableFieldLayout            Table = 0x10
	TableStandAloneSig          Table = 0x11
	TableEventMap               Table = 0x12
	TableEventPtr               Table = 0x13
	TableEvent                  Table = 0x14
	TablePropertyMap            Table = 0x15
	TablePropertyPtr            Table = 0x16
	TableProperty               Table = 0x17
	TableMethodSemantics        Table = 0x18
	TableMethodImpl             Table = 0x19
	TableModuleRef              Table = 0x1a
	TableTypeSpec               Table = 0x1b
	TableImplMap                Table = 0x1c
	TableFieldRVA               Table = 0x1d
	TableEncLog                 Table = 0x1e
	TableEncMap                 Table = 0x1f
	TableAssembly               Table = 0x20
	TableAssemblyProcessor      Table = 0x21
	TableAssemblyOS             Table = 0x22
	TableAssemblyRef            Table = 0x23
	TableAssemblyRefProcessor   Table = 0x24
	TableAssemblyRefOS          Table = 0x25
	TableFile                   Table = 0x26
	TableExportedType           Table = 0x27
	TableManifestResource       Table = 0x28
	TableNestedClass            Table = 0x29
	TableGenericParam           Table = 0x2a
	TableMethodSpec             Table = 0x2b
	TableGenericParamConstraint Table = 0x2c

	TableDocument               Table = 0x30
	TableMethodDebugInformation Table = 0x31
	TableLocalScope             Table = 0x32
	TableLocalVariable          Table = 0x33
	TableLocalConstant          Table = 0x34
	TableImportScope            Table = 0x35
	TableStateMachineMethod     Table = 0x36
	TableCustomDebugInformation Table = 0x37

	numTables = 0x38
)

// Token names a row of a table: the table in the high byte, the row's number,
// counted from 1, in the low three (III.1.9).
type Token uint32

// MakeToken returns the token of row rid of table t.
func MakeToken(t Table, rid uint32) Token { return Token(uint32(t)<<24 | rid&0xffffff) }

// Table returns the table of t's row.
func (t Token) Table() Table { return Table(t >> 24) }

// RID returns the row's number; 0 is no row.
func (t Token) RID() uint32 { return uint32(t) & 0xffffff }

// String prints t the way disassemblers do: 0x06000001.
func (t Token) String() string { return fmt.Sprintf("0x%08x", uint32(t)) }
