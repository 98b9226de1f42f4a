// A native library that the program "inmemory" blocks in. The functions that are not exported have names only in
// what the library can be stripped of.
#include <unistd.h>

static volatile int taken;

__attribute__((noinline)) static void shop_pause(void)
{
	for (;;)
		pause(); // line: shop_pause
}

__attribute__((noinline)) static void shop_shelf(int x)
{
	if (x > 0)
		shop_pause(); // line: shop_shelf
	taken = x;
}

void shop_wait(int x)
{
	shop_shelf(x); // line: shop_wait
	taken = x;
}
