package distkv

import (
	"reflect"
	"strings"
	"testing"
	"time"
)

// What a configuration may say, and how it is told what it may not.

func TestASeedIsOneAddress(t *testing.T) {
	for text, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "localhost": "localhost:27586", "n_1.example.org:1": "n_1.example.org:1", " h:1 ": "h:1",
		"[::1]:80": "[::1]:80", "[::1]": "[::1]:27586", "::1": "[::1]:27586", "[fe80::1%eth0]:80": "[fe80::1%eth0]:80",
		"fe80::1%eth0": "[fe80::1%eth0]:27586", "[fe80::1]:80": "[fe80::1]:80",
	} {
		if found, err := parseAddress(text, DefaultPort); err != nil || found.String() != want {
			t.Errorf("%q: %v, %v", text, found, err)
		}
	}
	for text, why := range map[string]string{
		"": "host:port", ":80": "host:port", "a:b": "port", "a:65536": "port", "a:-1": "port", "a:+80": "port", "a:": "port",
		"a:b:c:": "host:port", "a:5:6": "host:port", "a b:1": "host:port",
		"[::1": "does not close its bracket", "[::1]80": "no colon after its brackets", "[]:80": "host:port",
		"[x]:80": `brackets are for IPv6 addresses, and "x" is none`, "[10.0.0.1]:80": `and "10.0.0.1" is none; write host:port`,
		"fe80::1%eth0:80": "needs brackets before its port; write [fe80::1%eth0]:80", "fe80::1%eth0:80:80": "no port",
		"[fe80::1]:80": "give its zone, like [fe80::1%eth0]:80", "fe80::1": "give its zone, like [fe80::1%eth0]:27586",
		"h1:1,h2:2": "give a list", "h1,h2": "give a list", "[::1]:1,h": "give a list", "distkv://h:1": `without "distkv://"`,
		"a:0": "port 0", "[fe80::1%]:80": "give its zone, like [fe80::1%eth0]:80",
	} {
		_, err := Connect(t.Context(), Config{Seeds: []string{"127.0.0.1:1", text}})
		if wantError(t, err, ErrUsage); !strings.Contains(err.Error(), why) || !strings.Contains(err.Error(), strings.TrimSpace(text)) {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// negatives are configurations of which each has one negative number, by its name.
func negatives(t *testing.T) map[string]Config {
	t.Helper()
	found := map[string]Config{}
	for _, in := range []string{"", "Retry", "Pool", "Topology"} {
		section := func(config *Config) reflect.Value {
			all := reflect.ValueOf(config).Elem()
			if in != "" {
				return all.FieldByName(in)
			}
			return all
		}
		for i := range section(new(Config)).NumField() {
			config := Config{Seeds: []string{"127.0.0.1:1"}, ConnectDeadline: time.Millisecond}
			if field := section(&config).Field(i); field.CanInt() {
				field.SetInt(-1)
				found[strings.TrimPrefix(in+"."+section(&config).Type().Field(i).Name, ".")] = config
			}
		}
	}
	if len(found) < 27 {
		t.Fatal(found)
	}
	return found
}

func TestNoNumberOfAConfigurationIsNegative(t *testing.T) {
	for name, config := range negatives(t) {
		_, err := Connect(t.Context(), config)
		if wantError(t, err, ErrUsage); !strings.Contains(err.Error(), name+" is negative") {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestWhatIsOutOfItsRangeIsToldWithItsNameAndRange(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for why, config := range map[string]Config{
		"Pool.ConnectionsPerNode must be from 1 to 16, not 17":  {Pool: PoolConfig{ConnectionsPerNode: 17}},
		"Pool.Window must be from 2 to 4096, not 1;":            {Pool: PoolConfig{Window: 1}},
		"Pool.Window must be from 2 to 4096, not 4097":          {Pool: PoolConfig{Window: 4097}},
		"ReadMode cannot be Freshest with Topology.OnlySeeds":   {ReadMode: "FRESHEST", Topology: TopologyConfig{OnlySeeds: true}},
		"ShardTableAge must be at least 100ms, not 1ms; leave":  {ShardTableAge: time.Millisecond},
		"ShardTableAge must be at least 100ms, not 99.9":        {ShardTableAge: shardTableAgeMin - 1},
		"Login.User must have from 1 to 256 bytes, not 0":       {Login: PasswordLogin("", "x")},
		"Login.User must have from 1 to 256 bytes, not 257":     {Login: TokenLogin(long[:257], "x")},
		"Login.Secret must have from 0 to 4096 bytes, not 5000": {Login: PasswordLogin("ann", long)},
		"Login.Method must have from 0 to 256 bytes, not 257":   {Login: &Login{User: "ann", Method: long[:257]}},
		"Login.Key must have 32 bytes, not 31":                  {Login: &Login{Key: make([]byte, 31)}},
		"Login.Key must have 32 bytes, not 0":                   {Login: &Login{Key: []byte{}}},
	} {
		config.Seeds = []string{"127.0.0.1:1"}
		_, err := Connect(t.Context(), config)
		if wantError(t, err, ErrUsage); !strings.Contains(err.Error(), why) || strings.Contains(err.Error(), "xx") {
			t.Errorf("%s: %v", why, err)
		}
	}
	ca, cert, key := fixtures(t, "tls/ca.pem"), fixtures(t, "tls/joe.pem"), fixtures(t, "tls/joe.key")
	for why, settings := range map[string]TLS{
		"TLS.KeyFile is missing: TLS.CertFile has no private key": {CAFile: ca, CertFile: cert},
		"TLS.KeyFile needs TLS.CertFile":                          {CAFile: ca, KeyFile: key},
	} {
		_, err := Connect(t.Context(), Config{Seeds: []string{"127.0.0.1:1"}, TLS: &settings})
		if wantError(t, err, ErrUsage); !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
	// Zero is what is usual, and a key needs no user.
	one := &scripted{name: "s1"}
	zero := Config{Seeds: startScripted(t, one), Pool: PoolConfig{BusyAt: 0, Window: 0}, Retry: RetryPolicy{AttemptsMax: 0}}
	if config := connect(t, zero).config; config.Pool.BusyAt != 64 || config.Pool.Window != 64 || config.Retry.AttemptsMax != 0 {
		t.Errorf("%+v", config)
	}
}

func TestReadModesAreReadInAnyCase(t *testing.T) {
	for text, want := range map[ReadMode]ReadMode{"": AnyNode, "preferred": Preferred, "ANY": AnyNode, "Freshest": Freshest} {
		if found, err := text.check(AnyNode); found != want || err != nil {
			t.Errorf("%q: %q, %v", text, found, err)
		}
	}
	client := connect(t, Config{Seeds: startScripted(t, &scripted{name: "s1"}), ReadMode: "FRESHEST"})
	if client.config.ReadMode != Freshest {
		t.Error(client.config.ReadMode)
	}
}

func TestAVersionIsReadAsNodesWriteIt(t *testing.T) {
	for _, good := range []string{"5@n1~1f:3", "5@n1~0:3", "5@a:b~ffffffffffffffff:1", "5@n1~1f:-", "5@an old node:3", "5@é~1:3",
		"4611686018427387903@n~1:4611686018427387903"} {
		if read, err := ParseVersion(good); err != nil || read.String() != good || read.IsZero() {
			t.Errorf("%q: %v, %v", good, read, err)
		}
	}
	long := strings.Repeat("n", 65)
	for _, bad := range []string{"", "5", "x@n:1", "5@n:x", "5@:1", "-1@a~88248c9d183e:5", "+5@a~1:5", "05@a~1:5", "4611686018427387904@a~1:5",
		"5@a~1:0", "5@a~1:05", "5@a~1:+5", "5@a~1:-5", "5@a~1:4611686018427387904", "5@a~zz:1", "5@a~:1", "5@a~01:1", "5@a~1F:1", "5@~1:1",
		"5@a~10000000000000000:1", "5@a~1~1:1", "5@a b~1:1", "5@a\x00~1:1", "5@" + long + "~1:1", "5@\xff~1:1", "5@a\n:1"} {
		if read, err := ParseVersion(bad); err == nil {
			t.Errorf("%q is read as %v", bad, read)
		} else {
			wantError(t, err, ErrUsage)
		}
	}
}
