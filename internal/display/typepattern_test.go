package display

import "testing"

func TestTypePattern(t *testing.T) {
	for _, tt := range []struct {
		pattern, name string
		want          bool
	}{
		{"System.Byte[]", "System.Byte[]", true},
		{"System.Byte[]", "System.Byte[][]", true},
		{"System.Byte[]", "System.Byte", false},
		{"^System.Byte[]$", "System.Byte[][]", false},
		{`^System\.Byte\[\]$`, "System.Byte[]", true},
		{"System.Int32[,]", "System.Int32[,]", true},
		{"System.Int32[,]", "System.Int32,", false},
		{"Shop.Outer+Inner", "Shop.Outer+Inner", true},
		{"^Shop.Outer+Inner$", "Shop.Outer+Inner", false}, // a regular expression
		{"List`1", "System.Collections.Generic.List`1", true},
		{"List`1[[System.String, System.Private.CoreLib]]", "System.Collections.Generic.List<System.String>", true},
		{"List`1[[System.String, System.Private.CoreLib]]", "System.Collections.Generic.List<System.Int32>", false},
		{"^Box`1[[Pair`2[[A, x],[B[], y, Version=1.0]], z]][]$", "Box<Pair<A, B[]>>[]", true},
		{"Dictionary`2+Entry[[K, a],[V, b]][]", "Dictionary<K, V>+Entry[]", true},
		{"Outer`1+Inner`1[[K, a],[V, b]]", "Outer<K>+Inner<V>", true},
		{"(int, string)", "(int, string)", true},
		{"List`1[System.Byte[]]", "System.Collections.Generic.List<System.Byte[]>", true},
		{"^Pair`2[A,List`1[B]][]$", "Pair<A, List<B>>[]", true},
		{"Dictionary`2[System.String, System.Object]", "Dictionary<System.String, System.Object>", true},
		{"Dictionary`2+Entry[K,V][]", "Dictionary<K, V>+Entry[]", true},
		{"List`1[System.String]", "System.Collections.Generic.List<System.Int32>", false},
		{"List`1[]", "System.Collections.Generic.List`1[]", true},
	} {
		re, err := TypePattern(tt.pattern)
		if err != nil {
			t.Errorf("%s: %v", tt.pattern, err)
			continue
		}
		if re.MatchString(tt.name) != tt.want {
			t.Errorf("%s matches %s: %v", tt.pattern, tt.name, !tt.want)
		}
	}
	for pattern, right := range map[string]bool{
		"": true, "[": false, "a[b": false, "(": false, "`": true, "`[": false, "`1[[": true, "`1[a": true,
		"`1[a,": true,
	} {
		if _, err := TypePattern(pattern); (err == nil) != right {
			t.Errorf("%q: %v", pattern, err)
		}
	}
}
