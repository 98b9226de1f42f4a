// Package name turns the runtime's structures into names that a person reads:
// types with their generic arguments, methods, dynamic methods, and the source
// names behind those that compilers make up.
package name
