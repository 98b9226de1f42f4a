package name

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/method"
	"clrsnap/internal/clr/types"
	"clrsnap/internal/contract"
	"clrsnap/internal/ecma335"
	"clrsnap/internal/pace"
	"clrsnap/internal/target"
)

// Method has all names of a method.
type Method struct {
	Exact     string // metadata names of type and method, as in the runtime's StackTrace
	Display   string // with namespaces and generic arguments, from the source's point of view
	Short     string // Display without namespaces
	Signature string // parameter types in parentheses; empty: not known
	Assembly  string // simple name; empty for dynamic methods
	Shared    bool   // several instantiations share the code: __Canon stands for type arguments

	Image arch.Addr // of Assembly, where the assembly was loaded; 0: there is no image

	Unproved bool // the image may differ from the runtime's: Display and Short end in Unproved
}

// Namer names the methods and types of one runtime. A Namer is not safe for concurrent use.
type Namer struct {
	mem     *target.Reader
	types   *types.System
	methods *method.Reader
	l       layout

	identify  func(module arch.Addr) (moduleID, error)
	moduleL   moduleLayout
	assemblyL assemblyLayout
	streamL   streamLayout
	mapsL     mapsLayout
	images    Images // nil: all images are proved to be the loaded ones
	refused   map[refusal]error
	compared  int // methods: see sameOwners

	assemblies map[arch.Addr]*assembly // by Module
	passing    []arch.Addr             // modules that can be unloaded
	failed     map[moduleID]error      // modules with unreadable metadata at this moment: large reads are not retried
	names      map[arch.Addr]Method    // by MethodDesc, of code that stays
	instances  map[instanceKey]Method  // likewise, for instantiations of shared code
	canon      arch.Addr               // MethodTable of System.__Canon; 0: not known yet
	classes    map[arch.Addr]Class     // by type handle, of types that stay
	hidden     map[arch.Addr]bool      // by MethodTable: the exception machinery
	room       int                     // bytes left for assemblies, names and classes
	il         *pace.Allowance         // bytes of IL that are read
}

type layout struct {
	ModAssembly    uint32 `clr:"Module.Assembly"`
	AsmCollectible uint32 `clr:"Assembly.IsCollectible"`
}

// New binds the names of the runtime that d describes.
func New(mem target.Memory, d *contract.Descriptor, ts *types.System, ms *method.Reader) (*Namer, error) {
	n := &Namer{
		mem: target.NewReader(mem), types: ts, methods: ms,
		assemblies: map[arch.Addr]*assembly{}, names: map[arch.Addr]Method{}, hidden: map[arch.Addr]bool{},
		instances: map[instanceKey]Method{}, refused: map[refusal]error{},
		failed: map[moduleID]error{}, classes: map[arch.Addr]Class{}, room: maxKept,
		il: pace.NewAllowance(maxIL, ilPerSecond),
	}
	if err := d.Bind(&n.l); err != nil {
		return nil, err
	}
	return n, n.bindModules(d)
}

// Begin starts a new moment: modules that can be unloaded are read again.
func (n *Namer) Begin() {
	for _, m := range n.passing {
		n.drop(m)
	}
	n.passing = n.passing[:0]
	clear(n.failed)
}

const coreLib = "System.Private.CoreLib"

// exceptionMachinery is the class with the methods that dispatch exceptions
// (src/coreclr/nativeaot/Runtime.Base/src/System/Runtime/ExceptionHandling.cs, shared with CoreCLR). The runtime's
// own stack walks skip the class.
const exceptionMachinery = "System.Runtime.EH"

// Hidden reports whether DoStackSnapshot skips a method: a method without metadata, a method that the runtime made
// for a method with metadata, or a method of the runtime's exception machinery.
func (n *Namer) Hidden(desc arch.Addr) (hidden, machinery bool, err error) {
	m, err := n.methods.Read(desc)
	if err != nil {
		return false, false, err
	}
	if !m.HasMetadata() || m.Async.Thunk() {
		return true, false, nil
	}
	machinery, err = n.machinery(&m)
	return machinery, machinery, err
}

func (n *Namer) machinery(m *method.Method) (bool, error) {
	if h, ok := n.hidden[m.MethodTable]; ok {
		return h, nil
	}
	a, err := n.assembly(m.Module)
	if errors.Is(err, ErrOther) {
		return false, nil // CoreLib's image is proved, or nothing can be read
	}
	if err != nil {
		return false, err
	}
	t, err := n.types.Read(m.MethodTable)
	if err != nil || t.Kind != types.Class {
		return false, err
	}
	s, err := a.md.TypeName(t.RID)
	if err != nil {
		return false, err
	}
	h := a.name == coreLib && s == exceptionMachinery
	if h && len(n.hidden) < maxHidden {
		n.hidden[m.MethodTable] = true // CoreLib stays; other answers may not
	}
	return h, nil
}

// Attributes returns the MethodImplAttributes of a method; 0 for a method without metadata.
func (n *Namer) Attributes(m *method.Method) (uint16, error) {
	if m.RID == 0 {
		return 0, nil
	}
	a, err := n.assembly(m.Module)
	if err != nil {
		return 0, err
	}
	def, err := a.md.MethodDef(m.RID)
	return def.ImplFlags, err
}

// IsStatic reports whether a method with metadata has no object.
func (n *Namer) IsStatic(m *method.Method) (bool, error) {
	a, err := n.assembly(m.Module)
	if err != nil {
		return false, err
	}
	def, err := a.md.MethodDef(m.RID)
	return def.IsStatic(), err
}

// Method names the method of a MethodDesc. volatile: the code can be unloaded; the name is worked out each time, and
// not kept.
func (n *Namer) Method(m *method.Method, volatile bool) (Method, error) {
	if !volatile && m.HasMetadata() {
		if name, ok := n.names[m.Desc]; ok {
			return name, nil
		}
	}
	name, err := n.method(m)
	if err == nil && !volatile && m.HasMetadata() {
		if err := n.take(nameCost + name.size()); err != nil {
			return Method{}, err
		}
		n.names[m.Desc] = name
	}
	return name, err
}

func (m *Method) size() int {
	return len(m.Exact) + len(m.Display) + len(m.Short) + len(m.Signature) + len(m.Assembly)
}

func (n *Namer) method(m *method.Method) (Method, error) {
	if !m.HasMetadata() {
		return n.dynamic(m)
	}
	t, err := n.types.Read(m.MethodTable)
	if err != nil {
		return Method{}, err
	}
	if t.Kind != types.Class {
		return Method{}, fmt.Errorf("%w: a method of an array type", types.ErrCorrupt)
	}
	a, err := n.assembly(m.Module)
	if err != nil {
		return Method{}, err
	}
	typeArgs, err := n.args(t.Args)
	if err != nil {
		return Method{}, err
	}
	methodArgs, err := n.args(m.Args)
	if err != nil {
		return Method{}, err
	}
	shared, err := n.HasCanon(slices.Concat(t.Args, m.Args)...)
	if err != nil {
		return Method{}, err
	}
	out, err := n.defined(a, t.RID, m.RID, typeArgs, methodArgs)
	out.Shared = shared
	return out, err
}

// defined names a method of a type, both by their rows, with type arguments.
func (n *Namer) defined(a *assembly, typeRID, rid uint32, typeArgs, methodArgs []typeText) (Method, error) {
	typeName, err := a.md.TypeName(typeRID)
	if err != nil {
		return Method{}, err
	}
	def, err := a.md.MethodDef(rid)
	if err != nil {
		return Method{}, err
	}
	d := naming{n: n, a: a, def: def, typeRID: typeRID, methodRID: rid, typeArgs: typeArgs, methodArgs: methodArgs}
	out := Method{Exact: typeName + "." + def.Name, Assembly: a.name, Image: a.id.base, Unproved: a.unproved}
	f := FriendlyName(typeName, def.Name, hintOf(a.md, typeRID, typeName))
	out.Display, out.Short = d.display(f, ecma335.Full)+a.mark(), d.display(f, ecma335.Short)+a.mark()
	out.Signature = d.signature(f)
	return out, nil
}

// typeText is a type in both styles.
type typeText [2]string

func (n *Namer) args(handles []arch.Addr) ([]typeText, error) {
	out := make([]typeText, len(handles))
	for style := range (typeText{}) {
		b := newBudget()
		for i, h := range handles {
			s, err := n.typeName(h, ecma335.Style(style), &b, 0)
			if err != nil {
				return nil, err
			}
			out[i][style] = s
		}
	}
	return out, nil
}

// Type names the type of a type handle as C# would.
func (n *Namer) Type(h arch.Addr, style ecma335.Style) (string, error) {
	b := newBudget()
	return n.typeName(h, style, &b, 0)
}

const (
	maxTypeDepth = 32
	maxTypeNodes = 1024
	maxTypeText  = 1 << 16 // bytes; the text of an inner type counts again for each type around it
)

// budget bounds the work for one name, or for one list of names: types nest, and a corrupt type may contain itself.
type budget struct{ nodes, text int }

func newBudget() budget { return budget{maxTypeNodes, maxTypeText} }

// errFlag: a flag has an impossible value, so the object is not the expected object.
var errFlag = errors.New("the runtime's structures contradict themselves")

var errTooDeep = errors.New("a type is too large to be named")

func (n *Namer) typeName(h arch.Addr, style ecma335.Style, b *budget, depth int) (string, error) {
	s, err := n.unboundedName(h, style, b, depth)
	if b.text -= len(s); b.text < 0 && err == nil {
		return "", errTooDeep
	}
	return s, err
}

// unboundedName does not bound the length of the result; typeName does.
func (n *Namer) unboundedName(h arch.Addr, style ecma335.Style, b *budget, depth int) (string, error) {
	if b.nodes--; b.nodes < 0 || depth > maxTypeDepth {
		return "", errTooDeep
	}
	t, err := n.types.Read(h)
	if err != nil {
		return "", err
	}
	switch t.Kind {
	case types.Class:
		return n.className(t, style, b, depth)
	case types.TypeParam, types.MethodParam:
		return n.paramName(t)
	case types.FnPtr:
		var list []string
		for _, a := range append(t.Args[1:len(t.Args):len(t.Args)], t.Args[0]) {
			s, err := n.typeName(a, style, b, depth+1)
			if err != nil {
				return "", err
			}
			list = append(list, s)
		}
		return "delegate*<" + strings.Join(list, ", ") + ">", nil
	}
	elem, err := n.typeName(t.Elem, style, b, depth+1)
	if err != nil {
		return "", err
	}
	switch t.Kind {
	case types.Pointer:
		return elem + "*", nil
	case types.ByRef:
		return "ref " + elem, nil
	}
	return elem + "[" + strings.Repeat(",", t.Rank-1) + "]", nil
}

func (n *Namer) className(t types.Type, style ecma335.Style, b *budget, depth int) (string, error) {
	a, err := n.assembly(t.Module)
	if err != nil {
		return "", err
	}
	q, err := a.md.TypeDefName(t.RID)
	if err != nil {
		return "", err
	}
	var args []string
	for _, h := range t.Args {
		s, err := n.typeName(h, style, b, depth+1)
		if err != nil {
			return "", err
		}
		args = append(args, s)
	}
	// As an argument of the framework's builders, a state machine is shown as the method that the state machine was
	// compiled from.
	name, hint := q.String(), NoHint
	if strings.Contains(name, "@") { // the names of F#'s state machines look like closures
		hint = hintOf(a.md, t.RID, name)
	}
	f := FriendlyName(name, "MoveNext", hint)
	if style != ecma335.Runtime && f.Kind == StateMachine && f.MethodArity <= len(args) {
		own := f.typeArgs(len(args))
		s := ecma335.ParseTypeName(f.Type).Format(args[:own], style) + "." + f.Method
		if own < len(args) {
			s += "<" + strings.Join(args[own:], ", ") + ">"
		}
		return s + strings.TrimSuffix(f.Suffix, "{async}") + a.mark(), nil
	}
	return q.Format(args, style) + a.mark(), nil
}

// paramName: the GenericParam row names its owner's parameter.
func (n *Namer) paramName(t types.Type) (string, error) {
	a, err := n.assembly(t.Module)
	if err != nil {
		return "", err
	}
	const nameColumn = 3 // Number, Flags, Owner, Name (II.22.20)
	i, err := a.md.Cell(ecma335.TableGenericParam, t.RID, nameColumn)
	if err != nil {
		return "", err
	}
	return a.md.String(i)
}
