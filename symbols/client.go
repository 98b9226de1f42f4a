package symbols

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"time"
)

// newClient returns a client with all limits. The client sends no cookies, and obeys the environment's proxies.
func newClient(o *Options) *http.Client {
	dialer := &net.Dialer{Timeout: o.Connect}
	return &http.Client{
		Transport: &http.Transport{
			Proxy: http.ProxyFromEnvironment, DialContext: dialer.DialContext, ForceAttemptHTTP2: true,
			TLSHandshakeTimeout: o.Connect, ResponseHeaderTimeout: o.Stall, MaxResponseHeaderBytes: maxHeader,
			MaxConnsPerHost: 4, IdleConnTimeout: time.Minute,
		},
		CheckRedirect: redirect,
	}
}

// CheckProxies returns an error if the environment names a proxy by an address that cannot be one: without the error a
// client would ask servers without the proxy. The error does not have the address, which may have a password.
func CheckProxies() error {
	for _, name := range []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"} {
		if address := os.Getenv(name); address != "" && !isAddress(address) && !isAddress("http://"+address) {
			return fmt.Errorf("the variable %s is not the address of a proxy: write http://HOST:PORT, with special "+
				"characters of a password as %%XX, or unset the variable", name)
		}
	}
	return nil
}

func isAddress(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme != "" && u.Host != ""
}

// redirect decides whether a redirect is followed. The next server learns nothing of the server before: the address of
// a server may have a password or a token.
func redirect(to *http.Request, before []*http.Request) error {
	from := before[len(before)-1].URL
	switch {
	case len(before) > maxRedirects:
		return fmt.Errorf("the server redirects more than %d times", maxRedirects)
	case to.URL.Scheme != "https" && to.URL.Scheme != "http":
		return fmt.Errorf("the server redirects to an address of type %.20q", to.URL.Scheme)
	case from.Scheme == "https" && to.URL.Scheme != "https":
		return errors.New("the server redirects from https to http")
	}
	to.Header.Del("Referer")
	if to.URL.Host != before[0].URL.Host {
		to.Header.Del("Authorization")
		to.Header.Del("Cookie")
	}
	return nil
}

// reason is why a request failed, without the address. The address may have a password or a token.
func reason(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, context.Canceled) {
		return cause
	}
	var u *url.Error
	if errors.As(err, &u) {
		err = u.Err
	}
	return err
}

// stall ends a context when nothing has come for a while.
type stall struct {
	ctx   context.Context
	timer *time.Timer
	limit time.Duration
}

func stallTimer(parent context.Context, limit time.Duration) (stop func(), s *stall) {
	ctx, cancel := context.WithCancelCause(parent)
	s = &stall{ctx: ctx, limit: limit}
	s.timer = time.AfterFunc(limit, func() { cancel(fmt.Errorf("nothing has come for %v", limit)) })
	return func() { s.timer.Stop(); cancel(context.Canceled) }, s
}

// alive says that something has come, and starts the limit anew.
func (s *stall) alive() { s.timer.Reset(s.limit) }
