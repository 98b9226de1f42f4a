package engine

import (
	"strings"
	"testing"

	"clrsnap/internal/arch"
	"clrsnap/internal/clr/aot"
	"clrsnap/internal/target"
	"clrsnap/internal/testenv"
)

// TestAheadStatics compares the classes of static fields with the compiler's symbols in another file: of all classes
// for which the compiler has made a stub that runs the static constructor.
func TestAheadStatics(t *testing.T) {
	for _, program := range []string{"hello", "slim"} {
		t.Run(program, func(t *testing.T) {
			file := testenv.AheadOfTimeNewest(t, program)
			pid, _ := testenv.StartAheadOfTimeNewest(t, file)
			e, r := openAhead(t, pid)
			list, err := e.Ahead.StaticFields(e.Cache, r.Module.Start, r.Module.End)
			if err != nil {
				t.Fatal(err)
			}
			got := map[arch.Addr]aot.StaticFields{}
			for _, f := range list {
				got[f.Object] = f
			}
			bias := r.Module.Start - arch.Addr(r.Module.Offset(r.Module.Start))
			variables, stubs := staticSymbols(t, file+".dbg")
			right, named := 0, 0
			for class, at := range variables {
				obj, err := target.NewReader(e.Cache).Pointer(bias + at)
				f, made := got[obj]
				if err != nil || !made {
					continue // the constructor has not run
				}
				named += len(f.Names)
				switch {
				case f.StaticClass == aot.StaticClass{} && stubs[class]:
					t.Errorf("nothing is known of %s", class)
				case f.StaticClass == aot.StaticClass{}:
				case f.Table == 0 && !strings.Contains(letters(class), letters(f.Name)),
					f.Table != 0 && !isClass(e, f.Table, class):
					t.Errorf("%s is %+v", class, f.StaticClass)
				default:
					right++
				}
			}
			t.Logf("%d classes of %d objects, and %d names of fields", right, len(list), named)
			if right < len(stubs) {
				t.Errorf("the classes of %d stubs are known", len(stubs))
			}
		})
	}
}

// staticSymbols returns the variables of the classes with static fields, and the classes with stubs.
func staticSymbols(t *testing.T, file string) (variables map[string]arch.Addr, stubs map[string]bool) {
	t.Helper()
	_, symbols := testenv.Symbols(t, file)
	variables, stubs = map[string]arch.Addr{}, map[string]bool{}
	for _, s := range symbols {
		if class, ok := strings.CutPrefix(s.Name, "__GCSTATICS"); ok && !strings.HasSuffix(class, "PreInitData") {
			variables[class] = arch.Addr(s.Value)
		}
		if class, ok := strings.CutPrefix(s.Name, "__GetGCStaticBase_"); ok {
			stubs[class] = true
		}
	}
	return variables, stubs
}
