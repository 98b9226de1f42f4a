// Package display has the names and amounts for people, in reports as well as in
// files: names that are safe to print, weights with their units.
package display
