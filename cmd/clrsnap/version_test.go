package main

import (
	"runtime/debug"
	"testing"
)

// TestRecordedVersion: a clrsnap built without make knows its version, too.
func TestRecordedVersion(t *testing.T) {
	const commit = "1698ef08b223a72061390e279697928306a857c1"
	for _, tt := range []struct {
		module   string
		settings []debug.BuildSetting
		want     string
	}{
		{module: "v1.2.3", want: "v1.2.3"},
		{module: "(devel)", want: "unknown"},
		{module: "(devel)", settings: []debug.BuildSetting{{Key: "vcs.revision", Value: commit}}, want: "1698ef08b223"},
		{settings: []debug.BuildSetting{
			{Key: "vcs.revision", Value: commit}, {Key: "vcs.modified", Value: "true"},
		}, want: "1698ef08b223-dirty"},
		{settings: []debug.BuildSetting{{Key: "vcs.modified", Value: "true"}}, want: "unknown"},
	} {
		info := &debug.BuildInfo{Main: debug.Module{Version: tt.module}, Settings: tt.settings}
		if got := recordedVersion(info); got != tt.want {
			t.Errorf("%+v: %s, want %s", info, got, tt.want)
		}
	}
}
