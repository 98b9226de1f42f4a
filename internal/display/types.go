package display

import "strings"

// ShortType is the name of a type without the framework's namespaces of its own primitives. An internal class of .NET
// for the tasks of async methods and of Task.Run is shown as the Task that the program has.
func ShortType(name string) string {
	if task := asTask(name); task != "" {
		return task
	}
	for _, ns := range []string{"System.Threading.Tasks.", "System.Threading.", "System.Collections.Concurrent."} {
		if rest, ok := strings.CutPrefix(name, ns); ok && !strings.Contains(rest, ".") {
			return rest
		}
	}
	return name
}

// TypeOf names an object by its type, and by Of (snapshot.Wait.Of): typeof(Shop.Order), string "config".
func TypeOf(typ, of string) string {
	switch {
	case of == "":
		return ShortType(typ)
	case strings.HasPrefix(of, "typeof("):
		return of
	}
	return ShortType(typ) + " " + of
}

// taskClasses are the internal task classes. All have the type of the task's result, like Task<T>.
var taskClasses = []string{
	"System.Runtime.CompilerServices.AsyncHelpers+RuntimeAsyncTask<", "System.Threading.Tasks.UnwrapPromise<",
	"System.Threading.Tasks.Task<",
}

// noResult is the result type of a task without a result.
const noResult = "System.Threading.Tasks.VoidTaskResult"

// asTask is a class of a task as Task or Task<T>; "": not one of taskClasses.
func asTask(name string) string {
	for _, class := range taskClasses {
		if result, ok := strings.CutPrefix(name, class); ok {
			if result = strings.TrimSuffix(result, ">"); result == noResult {
				return "Task"
			}
			return "Task<" + result + ">"
		}
	}
	return ""
}
