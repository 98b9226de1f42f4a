struct Short { public int F() => 1; }
