package display

import "strings"

// Field is the name of a field (snapshot.Wait.Field) without namespaces: "Ledger._gate" of "Shop.Ledger._gate".
func Field(name string) string {
	const of = " of "
	if i := strings.LastIndex(name, of); i >= 0 && strings.HasPrefix(name, "variable ") {
		const member = ".x"
		return name[:i+len(of)] + strings.TrimSuffix(Shorten(name[i+len(of):]+member), member)
	}
	return Shorten(name)
}
