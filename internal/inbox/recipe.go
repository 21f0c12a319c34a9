package inbox

// The words that the rows of the table are written in.

func recipes(all ...recipe) []recipe { return all }

func parts(all ...part) recipe { return recipe{parts: all} }

// one is the key that is a single part, byte for byte.
func one(p part) []recipe { return []recipe{{parts: []part{p}}} }

// in is the first of these paths in the event.
func in(paths ...string) part { return part{from: refs(paths...)} }

// header is the first of these headers.
func header(names ...string) part {
	var p part
	for _, name := range names {
		p.from = append(p.from, ref{inHeader, name})
	}
	return p
}

func optional(p part) part {
	p.optional = true
	return p
}

func refs(paths ...string) []ref {
	var all []ref
	for _, path := range paths {
		all = append(all, ref{inEvent, path})
	}
	return all
}

// query is a parameter of the address that was called.
func query(name string) part { return part{from: []ref{{inQuery, name}}} }

// headerRefs is the first of these headers, as refs is of these paths.
func headerRefs(names ...string) []ref { return header(names...).from }
