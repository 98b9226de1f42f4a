using System;
using System.Diagnostics;
using System.Reflection;
using System.Text;

namespace Common;

/// <summary>Frames of System.Diagnostics.StackTrace as lines of a STACK block.</summary>
static class FrameText
{
    /// <summary>
    /// Appends a line: two tabs, and
    ///
    ///   token  MethodDesc  native offset  IL offset  line  file  kind  assembly  Type.Method
    ///
    /// Kinds: shown; hidden (left out of Environment.StackTrace, because it is marked StackTraceHidden or
    /// AggressiveInlining); pinvoke (a DllImport method, which stands for a Frame or a stub, and may be listed
    /// twice, or one that the runtime implements, or an abstract one, which stands for the Frame of a call that is
    /// being resolved); dynamic (a DynamicMethod).
    /// Dynamic methods have token 0 and MethodDesc 0, and their assembly is "-".
    /// The method handle of a shared generic method is that of the instantiation
    /// over which it is shared, or of its open form: do not rely on it for generics.
    /// </summary>
    public static void Append(StringBuilder text, StackFrame frame)
    {
        MethodBase m = frame.GetMethod();
        uint token = 0;
        ulong handle = 0;
        string assembly = "-", type = "", kind = "dynamic";
        if (m?.DeclaringType != null)
        {
            token = (uint)m.MetadataToken;
            handle = (ulong)m.MethodHandle.Value;
            assembly = m.Module.Assembly.GetName().Name;
            type = m.DeclaringType + ".";
            bool hidden = m.IsDefined(typeof(StackTraceHiddenAttribute), false)
                || m.DeclaringType.IsDefined(typeof(StackTraceHiddenAttribute), false)
                || (m.MethodImplementationFlags & MethodImplAttributes.AggressiveInlining) != 0;
            bool pinvoke = (m.Attributes & (MethodAttributes.PinvokeImpl | MethodAttributes.Abstract)) != 0
                || (m.MethodImplementationFlags & MethodImplAttributes.InternalCall) != 0;
            kind = pinvoke ? "pinvoke" : hidden ? "hidden" : "shown";
        }
        text.Append(
            $"\t\t{token:x8} {handle:x} {frame.GetNativeOffset()} {frame.GetILOffset()} "
            + $"{frame.GetFileLineNumber()} {frame.GetFileName() ?? "-"} "
            + $"{kind} {assembly} {type}{m?.Name ?? "?"}\n");
    }
}
