// Ends at once, with the exit code --code (default 0).
using Common;

namespace ShortLived;

static class Program
{
    static int Main(string[] args)
    {
        App.Start(args);
        return App.Int("code", 0);
    }
}
