//! Cycles of a graph of modules.
use std::collections::{BTreeMap, BTreeSet};

/// The modules from which each module imports, each with one path by which it does.
pub(super) type Imports = BTreeMap<String, BTreeMap<String, String>>;

/// Returns the sets of two or more modules of which each reaches all others, by Tarjan's algorithm.
pub(super) fn cycles(imports: &Imports) -> Vec<Vec<&str>> {
    let mut search = Search { imports, visits: BTreeMap::new(), path: Vec::new(), found: Vec::new() };
    for module in imports.keys() {
        if !search.visits.contains_key(module.as_str()) {
            search.visit(module);
        }
    }
    search.found
}

/// Returns the imports within a cycle, a line for each module.
pub(super) fn describe(cycle: &[&str], imports: &Imports) -> String {
    let within: BTreeSet<&str> = cycle.iter().copied().collect();
    let lines = within.iter().map(|module| {
        let from = imports.get(*module).into_iter().flatten().filter(|(other, _)| within.contains(other.as_str()));
        let from: Vec<String> = from.map(|(other, path)| format!("{other} ({path})")).collect();
        format!("  {module} from {}", from.join(", "))
    });
    lines.collect::<Vec<String>>().join("\n")
}

struct Search<'a> {
    imports: &'a Imports,
    visits: BTreeMap<&'a str, Visit>,
    path: Vec<&'a str>,
    found: Vec<Vec<&'a str>>,
}

#[derive(Clone, Copy)]
struct Visit {
    /// The number of modules visited before.
    order: usize,
    is_on_path: bool,
}

impl<'a> Search<'a> {
    /// Visits a module, and returns the earliest module on the path that it reaches.
    fn visit(&mut self, module: &'a str) -> usize {
        let order = self.visits.len();
        self.visits.insert(module, Visit { order, is_on_path: true });
        self.path.push(module);
        let mut lowest = order;
        for other in self.imports.get(module).into_iter().flat_map(BTreeMap::keys) {
            match self.visits.get(other.as_str()) {
                None => lowest = lowest.min(self.visit(other)),
                Some(visit) if visit.is_on_path => lowest = lowest.min(visit.order),
                Some(_) => {}
            }
        }
        if lowest == order {
            self.close(module);
        }
        lowest
    }

    /// Takes the modules from `module` on off the path: these reach each other.
    fn close(&mut self, module: &str) {
        let from = self.path.iter().rposition(|on_path| *on_path == module).unwrap_or(0);
        let mut cycle = self.path.split_off(from);
        for closed in &cycle {
            if let Some(visit) = self.visits.get_mut(closed) {
                visit.is_on_path = false;
            }
        }
        if cycle.len() > 1 {
            cycle.sort_unstable();
            self.found.push(cycle);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(edges: &[(&str, &str)]) -> Imports {
        let mut imports = Imports::new();
        for (from, to) in edges {
            imports.entry((*to).to_owned()).or_default();
            imports.entry((*from).to_owned()).or_default().insert((*to).to_owned(), format!("crate::{to}"));
        }
        imports
    }

    #[test]
    fn a_cycle_over_several_modules_is_found_and_a_shared_import_is_none() {
        let shared = imports(&[("a", "b"), ("a", "c"), ("b", "d"), ("c", "d")]);
        assert_eq!(cycles(&shared), Vec::<Vec<&str>>::new());
        let cycle = imports(&[("a", "b"), ("b", "c"), ("c", "b"), ("c", "d"), ("d", "e"), ("e", "f"), ("f", "d")]);
        assert_eq!(cycles(&cycle), [vec!["d", "e", "f"], vec!["b", "c"]]);
        assert_eq!(describe(&["b", "c"], &cycle), "  b from c (crate::c)\n  c from b (crate::b)");
    }
}
