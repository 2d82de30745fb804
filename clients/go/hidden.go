package distkv

// hidden is a secret where nothing that prints a struct shows it. Methods do not suffice for that: fmt calls none of what is in an
// unexported field. It shows where a pointer to a text points, and not the text, as it does with what a pointer to a struct has,
// where the verb is a wrong one.
type hidden struct{ text *string }

func hide(text string) hidden { return hidden{&text} }

// shown is the secret; "" where there is none.
func (h hidden) shown() string {
	if h.text == nil {
		return ""
	}
	return *h.text
}
