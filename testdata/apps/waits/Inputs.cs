namespace Waits;

/// <summary>Threads that wait for input.</summary>
static class Inputs
{
    public static void Fill() { }
}
