package distkv

import (
	"fmt"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// run is a program of the module that must end well; what it prints.
func run(t *testing.T, args ...string) string {
	t.Helper()
	// Not slowed down by the race detector.
	printed, err := exec.CommandContext(t.Context(), "go", append([]string{"run"}, args...)...).CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %v\n%s", args, err, printed)
	}
	return string(printed)
}

func TestTheExamplesRun(t *testing.T) {
	seed := shared(t)[0]
	for name, told := range map[string]string{
		"watch_resume": " 9]", "shared_counter": "4 writers counted to 100",
		"feature_flags": "beta was switched on", "service_presence": "up: [web]",
	} {
		if printed := run(t, "./examples/"+name, seed); !strings.Contains(printed, told) {
			t.Errorf("%s: %s", name, printed)
		}
	}
}

func TestTheReadmesProgramsRun(t *testing.T) {
	seed := shared(t)[0]
	text, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	programs := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllStringSubmatch(string(text), -1)
	if len(programs) != 4 {
		t.Error(len(programs))
	}
	var folders []string
	for _, program := range programs {
		// Within the module; folders with such a name are no part of it otherwise.
		folder, err := os.MkdirTemp(".", "_readme")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(folder) })
		source := strings.ReplaceAll(program[1], "127.0.0.1:27586", seed)
		if err := os.WriteFile(filepath.Join(folder, "main.go"), []byte(source), 0o600); err != nil {
			t.Fatal(err)
		}
		folders = append(folders, folder)
	}
	// Once more, since none may leave behind what changes another one's output.
	for range 2 {
		for i, program := range programs {
			printed := run(t, "./"+folders[i])
			for _, told := range regexp.MustCompile(`fmt\.Print.*\) +// (.*)`).FindAllStringSubmatch(program[1], -1) {
				if !strings.Contains(printed, told[1]) {
					t.Errorf("program %d prints %q, not %q", i+1, printed, told[1])
				}
			}
		}
	}
}

// sources are this package's files.
func sources(t *testing.T, set *token.FileSet, isTest bool) []*ast.File {
	t.Helper()
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	var found []*ast.File
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") == isTest && name != "planted.go" && name != "write_other.go" {
			file, err := parser.ParseFile(set, name, nil, parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			found = append(found, file)
		}
	}
	return found
}

func behaviour(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../docs/client-behaviour.md")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestEachRuleNamesAProofThatExists(t *testing.T) {
	tests := map[string]bool{}
	for _, file := range sources(t, token.NewFileSet(), true) {
		for _, one := range file.Decls {
			if function, ok := one.(*ast.FuncDecl); ok {
				tests[function.Name.Name] = true
			}
		}
	}
	rules := regexp.MustCompile(`(?m)^(\d+)\. `).FindAllStringSubmatch(behaviour(t), -1)
	rows := regexp.MustCompile("(?m)^\\| (\\d+) \\| (`Test.*`|.*clause.*) \\|$").FindAllStringSubmatch(behaviour(t), -1)
	if len(rules) != len(rows) || len(rows) < 35 {
		t.Fatalf("%d rules, %d rows", len(rules), len(rows))
	}
	for i, row := range rows {
		if row[1] != strconv.Itoa(i+1) {
			t.Errorf("row %d is of rule %s", i+1, row[1])
		}
		for _, name := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(row[2], -1) {
			if !tests[name[1]] {
				t.Errorf("rule %s: there is no %s", row[1], name[1])
			}
		}
	}
}

func TestEachBoundIsInTheTableWithItsValue(t *testing.T) {
	table := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+Max)` \\| ([\\d,]+) \\|").FindAllStringSubmatch(behaviour(t), -1) {
		table[row[1]] = strings.ReplaceAll(row[2], ",", "")
	}
	set := token.NewFileSet()
	config := types.Config{Error: func(error) {}} // Imports are not resolved: bounds need none.
	pkg, _ := config.Check("distkv", set, sources(t, set, false), nil)
	found := map[string]string{}
	for _, name := range pkg.Scope().Names() {
		one, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || !strings.HasSuffix(name, "Max") || one.Val() == nil {
			continue
		}
		if number, ok := constant.Int64Val(constant.ToInt(one.Val())); ok {
			found[name] = strconv.FormatInt(number, 10)
		}
	}
	if fmt.Sprint(found) != fmt.Sprint(table) || len(found) < 20 {
		t.Errorf("in the code:\n%v\nin the table:\n%v", found, table)
	}
}

func TestEveryFileIsOneThingAndEveryPublicNameIsDocumented(t *testing.T) {
	set := token.NewFileSet()
	for _, file := range append(sources(t, set, false), sources(t, set, true)...) {
		where := set.File(file.Pos())
		if where.LineCount() > 500 {
			t.Errorf("%s has %d lines", where.Name(), where.LineCount())
		}
		if strings.HasSuffix(where.Name(), "_test.go") {
			continue
		}
		for _, one := range file.Decls {
			switch decl := one.(type) {
			case *ast.FuncDecl:
				if decl.Name.IsExported() && decl.Doc == nil && !slices.Contains([]string{"Error", "String"}, decl.Name.Name) && isPublic(decl) {
					t.Errorf("%s: %s is not documented", where.Name(), decl.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range decl.Specs {
					if named, ok := spec.(*ast.TypeSpec); ok && named.Name.IsExported() && decl.Doc == nil && named.Doc == nil {
						t.Errorf("%s: %s is not documented", where.Name(), named.Name.Name)
					}
				}
			}
		}
	}
}

// isPublic tells whether a function, or its receiver, can be seen from outside.
func isPublic(function *ast.FuncDecl) bool {
	if function.Recv == nil {
		return true
	}
	kind := function.Recv.List[0].Type
	if pointer, ok := kind.(*ast.StarExpr); ok {
		kind = pointer.X
	}
	name, ok := kind.(*ast.Ident)
	return ok && name.IsExported()
}
