// Package name turns the runtime's structures into names that a person reads:
// types with their generic arguments, methods, dynamic methods, and the source
// names behind compiler-generated ones.
package name
