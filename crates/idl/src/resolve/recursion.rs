//! Types that contain themselves without a sequence between: they have no size, or no end.
use crate::error::Found;
use crate::fault::IdlFault;
use crate::model::{DataType, ItemId, ItemKind, Model};
use std::collections::BTreeSet;

/// A member that holds a value of another type.
#[derive(Clone, Debug)]
struct Edge {
    to: ItemId,
    member: String,
    optional: bool,
    external: bool,
    /// Whether a new value of the type has the member.
    is_made: bool,
}

/// Returns the faults of all types that contain themselves.
pub(super) fn check(model: &Model) -> Vec<Found<IdlFault>> {
    let edges: Vec<Vec<Edge>> = (0..model.items.len()).map(|index| edges(model, ItemId(index as u32))).collect();
    let (mut faults, mut reported) = (Vec::new(), BTreeSet::new());
    for cycle in cycles(&edges, |edge| !edge.external) {
        let name = model.item(cycle[0].0).dds_name();
        let chain = chain(model, &cycle);
        reported.extend(cycle.iter().map(|(id, _)| *id));
        let place = model.item(cycle[0].0).place;
        faults.push((
            place,
            match cycle.iter().any(|(_, edge)| edge.optional) {
                true => IdlFault::RecursionExternal { name, chain },
                false => IdlFault::Recursion { name, chain },
            },
        ));
    }
    for cycle in cycles(&edges, |edge| !edge.optional && edge.is_made) {
        if cycle.iter().all(|(id, _)| !reported.contains(id)) {
            let name = model.item(cycle[0].0).dds_name();
            faults.push((
                model.item(cycle[0].0).place,
                IdlFault::RecursionOptional { name, chain: chain(model, &cycle) },
            ));
        }
    }
    faults
}

fn chain(model: &Model, cycle: &[(ItemId, Edge)]) -> String {
    let step = |(id, edge): &(ItemId, Edge)| format!("{}.{}", model.item(*id).dds_name(), edge.member);
    cycle.iter().map(step).collect::<Vec<_>>().join(" -> ")
}

fn edges(model: &Model, id: ItemId) -> Vec<Edge> {
    let edge = |data: &DataType, member: &str, optional, external, is_made| {
        target(model, data).map(|to| Edge { to, member: member.to_owned(), optional, external, is_made })
    };
    match &model.item(id).kind {
        ItemKind::Struct(own) => {
            let members = model.all_members(own);
            members.iter().filter_map(|m| edge(&m.data, &m.name, m.optional, m.external, true)).collect()
        }
        ItemKind::Union(own) => {
            let made = model.missing_case(own).map(|case| &case.name);
            let cases = own.cases.iter();
            cases
                .filter_map(|case| edge(&case.data, &case.name, false, case.external, made == Some(&case.name)))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the structure or union that a value of this type holds, also in an array.
fn target(model: &Model, data: &DataType) -> Option<ItemId> {
    match model.resolved(data) {
        DataType::Array(element, _) => target(model, element),
        DataType::Named(id) => Some(*id),
        _ => None,
    }
}

/// Returns one cycle for each group of types that contain each other by edges that count.
fn cycles(edges: &[Vec<Edge>], counts: impl Fn(&Edge) -> bool) -> Vec<Vec<(ItemId, Edge)>> {
    let (mut done, mut found) = (vec![false; edges.len()], Vec::new());
    for start in 0..edges.len() {
        // The path from the start, and for each of its types the next edge. No recursion, since a
        // chain of types may be long.
        let (mut path, mut on_path) = (Vec::<(usize, usize)>::new(), BTreeSet::new());
        if !done[start] {
            path.push((start, 0));
            on_path.insert(start);
        }
        while let Some((at, next)) = path.last_mut() {
            let (at, index) = (*at, *next);
            *next += 1;
            let Some(edge) = edges[at].get(index) else {
                done[at] = true;
                on_path.remove(&at);
                path.pop();
                continue;
            };
            let to = edge.to.0 as usize;
            if !counts(edge) || done[to] {
                continue;
            }
            if on_path.insert(to) {
                path.push((to, 0));
                continue;
            }
            let from = path.iter().position(|(at, _)| *at == to).unwrap_or_default();
            let cycle: Vec<_> =
                path[from..].iter().map(|(at, next)| (ItemId(*at as u32), edges[*at][next - 1].clone())).collect();
            // Types of a cycle are reported once.
            cycle.iter().for_each(|(id, _)| done[id.0 as usize] = true);
            found.push(cycle);
        }
    }
    found
}
