// Package name turns the runtime's structures into names for people: types with their generic arguments, methods,
// dynamic methods, and the source names behind compiler-generated names.
package name
