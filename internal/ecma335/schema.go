package ecma335

// column is the kind of a table's column. The kind gives the width.
type column uint8

const (
	u2   column = iota // 2 bytes
	u4                 // 4 bytes
	str                // index into #Strings
	guid               // index into #GUID
	blob               // index into #Blob

	ref   column = 0x40 // + table: row of that table
	coded column = 0x80 // + codedKind: row of one of several tables
	list  column = 0xc0 // + table: first row of a run, through the pointer table if there is one
)

// schemas lists every table's columns (II.22.2 to II.22.39; the pointer and
// edit-and-continue tables as in the runtime's src/coreclr/md/inc/metamodelcolumndefs.h;
// 0x30 and up as in the Portable PDB v1.0 specification).
var schemas = [numTables][]column{
	TableModule:  {u2, str, guid, guid, guid},
	TableTypeRef: {coded + resolutionScope, str, str},
	TableTypeDef: {u4, str, str, coded + typeDefOrRef,
		list + column(TableField), list + column(TableMethodDef)},
	TableFieldPtr:               {ref + column(TableField)},
	TableField:                  {u2, str, blob},
	TableMethodPtr:              {ref + column(TableMethodDef)},
	TableMethodDef:              {u4, u2, u2, str, blob, list + column(TableParam)},
	TableParamPtr:               {ref + column(TableParam)},
	TableParam:                  {u2, u2, str},
	TableInterfaceImpl:          {ref + column(TableTypeDef), coded + typeDefOrRef},
	TableMemberRef:              {coded + memberRefParent, str, blob},
	TableConstant:               {u2, coded + hasConstant, blob},
	TableCustomAttribute:        {coded + hasCustomAttribute, coded + customAttributeType, blob},
	TableFieldMarshal:           {coded + hasFieldMarshal, blob},
	TableDeclSecurity:           {u2, coded + hasDeclSecurity, blob},
	TableClassLayout:            {u2, u4, ref + column(TableTypeDef)},
	TableFieldLayout:            {u4, ref + column(TableField)},
	TableStandAloneSig:          {blob},
	TableEventMap:               {ref + column(TableTypeDef), list + column(TableEvent)},
	TableEventPtr:               {ref + column(TableEvent)},
	TableEvent:                  {u2, str, coded + typeDefOrRef},
	TablePropertyMap:            {ref + column(TableTypeDef), list + column(TableProperty)},
	TablePropertyPtr:            {ref + column(TableProperty)},
	TableProperty:               {u2, str, blob},
	TableMethodSemantics:        {u2, ref + column(TableMethodDef), coded + hasSemantics},
	TableMethodImpl:             {ref + column(TableTypeDef), coded + methodDefOrRef, coded + methodDefOrRef},
	TableModuleRef:              {str},
	TableTypeSpec:               {blob},
	TableImplMap:                {u2, coded + memberForwarded, str, ref + column(TableModuleRef)},
	TableFieldRVA:               {u4, ref + column(TableField)},
	TableEncLog:                 {u4, u4},
	TableEncMap:                 {u4},
	TableAssembly:               {u4, u2, u2, u2, u2, u4, blob, str, str},
	TableAssemblyProcessor:      {u4},
	TableAssemblyOS:             {u4, u4, u4},
	TableAssemblyRef:            {u2, u2, u2, u2, u4, blob, str, str, blob},
	TableAssemblyRefProcessor:   {u4, ref + column(TableAssemblyRef)},
	TableAssemblyRefOS:          {u4, u4, u4, ref + column(TableAssemblyRef)},
	TableFile:                   {u4, str, blob},
	TableExportedType:           {u4, u4, str, str, coded + implementation},
	TableManifestResource:       {u4, u4, str, coded + implementation},
	TableNestedClass:            {ref + column(TableTypeDef), ref + column(TableTypeDef)},
	TableGenericParam:           {u2, u2, coded + typeOrMethodDef, str},
	TableMethodSpec:             {coded + methodDefOrRef, blob},
	TableGenericParamConstraint: {ref + column(TableGenericParam), coded + typeDefOrRef},

	TableDocument:               {blob, guid, blob, guid},
	TableMethodDebugInformation: {ref + column(TableDocument), blob},
	TableLocalScope: {ref + column(TableMethodDef), ref + column(TableImportScope),
		ref + column(TableLocalVariable), ref + column(TableLocalConstant), u4, u4},
	TableLocalVariable:          {u2, u2, str},
	TableLocalConstant:          {str, blob},
	TableImportScope:            {ref + column(TableImportScope), blob},
	TableStateMachineMethod:     {ref + column(TableMethodDef), ref + column(TableMethodDef)},
	TableCustomDebugInformation: {coded + hasCustomDebugInformation, guid, blob},
}

const maxColumns = 9

// The kinds of coded index (II.24.2.6).
const (
	typeDefOrRef column = iota
	hasConstant
	hasCustomAttribute
	hasFieldMarshal
	hasDeclSecurity
	memberRefParent
	hasSemantics
	methodDefOrRef
	memberForwarded
	implementation
	customAttributeType
	resolutionScope
	typeOrMethodDef
	hasCustomDebugInformation
)

// noTable fills the unused values of a tag.
const noTable Table = 0xff

// codedKinds gives, for each kind of coded index, the width of the tag in the
// low bits and the table for each value of the tag (II.24.2.6).
var codedKinds = [...]struct {
	bits   uint8
	tables []Table
}{
	typeDefOrRef: {2, []Table{TableTypeDef, TableTypeRef, TableTypeSpec}},
	hasConstant:  {2, []Table{TableField, TableParam, TableProperty}},
	hasCustomAttribute: {5, []Table{TableMethodDef, TableField, TableTypeRef, TableTypeDef, TableParam,
		TableInterfaceImpl, TableMemberRef, TableModule, TableDeclSecurity, TableProperty, TableEvent,
		TableStandAloneSig, TableModuleRef, TableTypeSpec, TableAssembly, TableAssemblyRef, TableFile,
		TableExportedType, TableManifestResource, TableGenericParam, TableGenericParamConstraint, TableMethodSpec}},
	hasFieldMarshal:     {1, []Table{TableField, TableParam}},
	hasDeclSecurity:     {2, []Table{TableTypeDef, TableMethodDef, TableAssembly}},
	memberRefParent:     {3, []Table{TableTypeDef, TableTypeRef, TableModuleRef, TableMethodDef, TableTypeSpec}},
	hasSemantics:        {1, []Table{TableEvent, TableProperty}},
	methodDefOrRef:      {1, []Table{TableMethodDef, TableMemberRef}},
	memberForwarded:     {1, []Table{TableField, TableMethodDef}},
	implementation:      {2, []Table{TableFile, TableAssemblyRef, TableExportedType}},
	customAttributeType: {3, []Table{noTable, noTable, TableMethodDef, TableMemberRef}},
	resolutionScope:     {2, []Table{TableModule, TableModuleRef, TableAssemblyRef, TableTypeRef}},
	typeOrMethodDef:     {1, []Table{TableTypeDef, TableMethodDef}},
	hasCustomDebugInformation: {5, []Table{TableMethodDef, TableField, TableTypeRef, TableTypeDef, TableParam,
		TableInterfaceImpl, TableMemberRef, TableModule, TableDeclSecurity, TableProperty, TableEvent,
		TableStandAloneSig, TableModuleRef, TableTypeSpec, TableAssembly, TableAssemblyRef, TableFile,
		TableExportedType, TableManifestResource, TableGenericParam, TableGenericParamConstraint, TableMethodSpec,
		TableDocument, TableLocalScope, TableLocalVariable, TableLocalConstant, TableImportScope}},
}

// decodeCoded turns the value v of a coded index into a token. A row number of
// 0 keeps its table: the caller decides whether "none" is allowed.
func decodeCoded(kind column, v uint32) (Token, error) {
	k := &codedKinds[kind]
	tag, rid := v&(1<<k.bits-1), v>>k.bits
	if int(tag) >= len(k.tables) || k.tables[tag] == noTable {
		return 0, malformed("tag %d of coded index %#x stands for no table", tag, v)
	}
	if rid > 0xffffff {
		return 0, malformed("coded index %#x names row %d, rows end at %d", v, rid, 0xffffff)
	}
	return MakeToken(k.tables[tag], rid), nil
}
