//! Finds values that are each allowed and do not fit together.
use super::FileSubgroup;
use super::effective::{Effective, Entry};
use super::problem::{Origin, Problem};
use super::value::{Value, is_loopback};
use crate::{Address, Config, Subgroup, Who};
use spindle_core::MemberId;

/// Adds the problems that it finds. With `is_partial`, a missing value may be in a file that could
/// not be read.
pub(super) fn check(effective: &mut Effective, listed: &[FileSubgroup], is_partial: bool) {
    let mut found = Vec::new();
    // A value that was reported as wrong is not missing as well.
    let is_wrong = |path: &str| effective.problems.iter().any(|p| p.is_error && p.key.as_deref() == Some(path));
    let is_missing = |path: &str| !is_partial && !is_wrong(path);
    if effective.group().is_none() && is_missing("group.name") {
        let message = "group.name is not set here; whoever joins has to name the group".to_string();
        let key = Some("group.name".to_string());
        found.push(Problem { origin: Origin::Standard, key, message, is_error: false });
    }
    for (subgroup, listed) in effective.subgroups().into_iter().zip(listed) {
        found.extend(check_subgroup(effective, &subgroup, &listed.origin));
        found.extend(check_log(effective, &subgroup, is_missing("member.data_dir")));
    }
    check_network(effective, is_missing("network.listen"), &mut found);
    effective.problems.extend(found);
}

/// Checks a subgroup by the rules that the members apply, so that there are no others.
fn check_subgroup(effective: &Effective, subgroup: &Subgroup, listed: &Origin) -> Option<Problem> {
    // Enough members for every rank that is named.
    let count = |who: &Who| match who {
        Who::All => 1,
        Who::First(count) => *count,
        Who::Shard { most, .. } => *most,
        Who::Ranks(ranks) => ranks.iter().max().map_or(1, |rank| rank + 1),
    };
    let members = count(&subgroup.members).max(count(&subgroup.senders));
    let config = Config { subgroups: vec![subgroup.clone()], ..Config::new("checked", members) };
    let error = config.view((0..u64::from(members)).map(MemberId).collect()).check().err()?;
    // A value that was given; if several were, the last is as good as any.
    let leaves = ["message_bytes_max", "window", "senders", "members", "durable_copies", "durability"];
    let said = leaves.iter().filter_map(|leaf| {
        let entry = effective.entry(&format!("subgroup.{}.{leaf}", subgroup.name))?;
        (entry.origin != Origin::Standard).then_some(entry)
    });
    let (origin, key) = said
        .map(|entry| (entry.origin.clone(), Some(entry.path.clone())))
        .next()
        .unwrap_or_else(|| (listed.clone(), None));
    Some(Problem { origin, key, message: error.to_string(), is_error: true })
}

/// Checks that a logged subgroup has a place for its log. With `tells_lack`, none counts as missing.
fn check_log(effective: &Effective, subgroup: &Subgroup, tells_lack: bool) -> Option<Problem> {
    let lacks = tells_lack && subgroup.is_logged() && effective.path("member.data_dir").is_none();
    let entry = effective.entry(&format!("subgroup.{}.durability", subgroup.name)).filter(|_| lacks)?;
    let message = format!(
        "{} is {:?}, and member.data_dir is not set: this member needs a directory for its log",
        entry.path,
        entry.value.as_ref().map(ToString::to_string).unwrap_or_default()
    );
    Some(entry.problem(message, true))
}

/// Checks the network. With `tells_lack`, an empty `listen` counts as missing.
fn check_network(effective: &Effective, tells_lack: bool, found: &mut Vec<Problem>) {
    let entry = |path: &str| effective.entry(path).filter(|entry| entry.value.is_some());
    let said = |path: &str| entry(path).filter(|entry| entry.origin != Origin::Standard);
    let (listen, seeds) = (effective.list("network.listen"), effective.list("network.seeds"));
    let tls: Vec<&Entry> =
        ["ca", "cert", "key"].iter().filter_map(|leaf| said(&format!("network.tls.{leaf}"))).collect();
    if let (1 | 2, Some(one)) = (tls.len(), tls.first()) {
        let has = |leaf: &&&str| !tls.iter().any(|entry| entry.key.leaf() == **leaf);
        let missing: Vec<&str> = ["ca", "cert", "key"].iter().filter(has).copied().collect();
        let is = if missing.len() == 1 { "is" } else { "are" };
        let message = format!("TLS needs ca, cert and key; in [network.tls], {} {is} missing", missing.join(" and "));
        found.push(one.problem(message, true));
    }
    if let Some(entry) =
        said("network.tls.identity").filter(|_| effective.text("network.tls.identity") == Some("names"))
    {
        let why = match (tls.is_empty(), effective.number("member.id")) {
            (true, _) => Some("there are no certificates"),
            (false, None) => Some("member.id is not set: a member would draw an id, and no certificate names that"),
            (false, Some(_)) => None,
        };
        found.extend(why.map(|why| entry.problem(format!("network.tls.identity is \"names\", and {why}"), false)));
    }
    let insecure = effective.value("network.insecure") == Some(&Value::Switch(true));
    let open: Vec<&String> = listen.iter().filter(|address| !is_loopback(address)).collect();
    if let (Some(first), true, false, Some(entry)) = (open.first(), tls.is_empty(), insecure, entry("network.listen")) {
        let message = format!(
            "{first} can be reached from other hosts, and there is no TLS: each process that reaches it could read and send; \
             set ca, cert and key in [network.tls], or network.insecure = true if each process there may"
        );
        found.push(entry.problem(message, true));
    }
    if let (true, false, Some(entry)) = (insecure, tls.is_empty(), said("network.insecure")) {
        found.push(entry.problem("network.insecure has no effect, as there are certificates".to_string(), false));
    }
    if listen.is_empty() && seeds.is_empty() {
        let is_more = |entry: &&Entry| {
            let value = entry.value.as_ref().map(Value::to_string);
            entry.path.starts_with("network.") && value.is_some_and(|value| value != entry.key.standard)
        };
        let unused = effective.entries().iter().find(is_more);
        if let (true, Some(entry)) = (tells_lack, unused) {
            let message = format!("{} has no effect without network.listen or network.seeds", entry.path);
            found.push(entry.problem(message, false));
        }
        return;
    }
    if let (true, Some(entry)) = (tells_lack && listen.is_empty(), said("network.seeds")) {
        let message = "network.seeds is set, and network.listen is not: no member of another host could reach this one; set it to an \
                       address of this host, such as 10.0.0.7:0";
        found.push(entry.problem(message.to_string(), true));
    }
    if let (Some(entry), Some(count)) = (said("network.seed_count"), effective.number("network.seed_count")) {
        let given: Vec<Address> = seeds.iter().filter_map(|seed| seed.parse().ok()).collect();
        if let Some(why) = spindle_core::control::mistake(&given, count as u32) {
            found.push(entry.problem(format!("network.seed_count is {count}: {why}"), true));
        }
    }
    let patience = (effective.time("network.silence"), effective.time("group.suspect_after"));
    if let (Some(entry), (Some(silence), Some(suspect_after))) = (entry("network.silence"), patience)
        && silence < suspect_after
    {
        let message = "network.silence is less than group.suspect_after: a short break of the network costs members \
                       their places sooner than a hang does";
        found.push(entry.problem(message.to_string(), false));
    }
    let is_ofi = effective.text("network.fabric.kind") == Some("ofi");
    for entry in ["provider", "domain", "address"].iter().filter_map(|leaf| said(&format!("network.fabric.{leaf}"))) {
        if !is_ofi {
            let message = format!("{} has no effect with network.fabric.kind = \"tcp\"", entry.path);
            found.push(entry.problem(message, false));
        }
    }
    if let (true, Some(entry), false) = (is_ofi, said("network.fabric.kind"), tls.is_empty()) {
        let message = "network.fabric.kind = \"ofi\" can't be used with TLS, as libfabric encrypts nothing: take [network.tls] out, \
                       and set network.insecure = true if each process that reaches the network may read and send; or use tcp";
        found.push(entry.problem(message.to_string(), true));
    }
}
