//! Effective values, their origins, and the reports of mistakes.
use super::*;
use crate::{Durability, LogSettings, MemberId, OfiOptions, Order, Transport, Who};
use std::net::Ipv4Addr;
use std::time::Duration;

const FULL: &str = r#"
runtime_dir = "run"

[group]
name = "prices"
founders = 3
suspect_after = "300ms"

[member]
id = 7
data_dir = "votes"
log_segment_bytes = "1MiB"
log_bytes_max = "10GiB"
log_age_max = "7d"
log_wait_max = "300s"
restart_wait = "3s"
gather_timeout = 5
spin_for = 0.002

[[subgroup]]
name = "ticks"
senders = "first 2"
order = "fifo"
window = 1_000
message_bytes_max = 256

[[subgroup]]
name = "orders"
members = [0, 2]
message_bytes_max = "1KiB"
durability = "logged"

[network]
listen = ["127.0.0.1:7411", "[::1]:7411"]
advertise = "host:7411"
seeds = ["a:7411", "b.example.org:7412"]
seed_count = 5
silence = "20s"
rack = "row-1"
topology = "racks.toml"

[network.tls]
ca = "/etc/ca.pem"
cert = "member.pem"
key = "member.key"
identity = "names"

[network.fabric]
kind = "tcp"
"#;

/// Replaces the last two tables.
const OFI: &str = r#"
[network.fabric]
kind = "ofi"
provider = "verbs"
domain = "mlx5_0"
address = "127.0.0.1"
"#;

fn problems(text: &str) -> Vec<String> {
    match Settings::from_toml("x.toml", text).effective() {
        Ok(effective) => effective.warnings().iter().map(Problem::to_string).collect(),
        Err(SettingsError::Wrong(problems)) => problems.iter().map(Problem::to_string).collect(),
        Err(error) => panic!("{error}"),
    }
}

/// Returns the problems that are no warnings.
fn errors(text: &str) -> Vec<String> {
    problems(text).into_iter().filter(|problem| !problem.contains("warning: ")).collect()
}

fn vars(all: &[(&str, &str)]) -> Vec<(OsString, OsString)> {
    all.iter().map(|(name, text)| (name.into(), text.into())).collect()
}

#[test]
fn a_file_says_all_there_is_to_say() {
    let effective = Settings::from_toml("/etc/spindle/x.toml", FULL).effective().unwrap();
    assert!(effective.warnings().is_empty(), "{:?}", effective.warnings());
    let may_lack = |path: &str| {
        ["network.insecure", "subgroup.ticks.durable_copies"].contains(&path) || path.starts_with("network.fabric.")
    };
    assert!(effective.entries().iter().all(|e| may_lack(&e.path) || e.value.is_some()));
    let network = effective.network().unwrap();
    let expected = NetworkSettings {
        listen: vec!["127.0.0.1:7411".into(), "[::1]:7411".into()],
        advertise: Some("host:7411".into()),
        seeds: vec!["a:7411".into(), "b.example.org:7412".into()],
        seed_count: Some(5),
        insecure: false,
        silence: Duration::from_secs(20),
        rack: Some("row-1".into()),
        topology: Some("/etc/spindle/racks.toml".into()),
        tls: Some(TlsFiles {
            ca: "/etc/ca.pem".into(),
            cert: "/etc/spindle/member.pem".into(),
            key: "/etc/spindle/member.key".into(),
            identity: crate::IdentityRule::Names,
        }),
        fabric: FabricSettings::Tcp,
    };
    assert_eq!(network, expected);
    let error = Settings::from_toml("x", FULL).effective().unwrap().config().unwrap_err().to_string();
    assert!(error.contains("/etc/ca.pem"), "{error}");
    let (open, _) = FULL.split_once("[network.tls]").unwrap();
    let config = Settings::from_toml("x", open).effective().unwrap().config().unwrap();
    let network = config.network.unwrap();
    assert_eq!(network.transport, Transport::Tcp);
    // The rack was given, so the file is not read.
    assert_eq!(network.rack.unwrap().as_str(), "row-1");
    let effective = Settings::from_toml("x", &format!("{open}{OFI}")).effective().unwrap();
    assert!(effective.warnings().is_empty(), "{:?}", effective.warnings());
    let network = effective.config().unwrap().network.unwrap();
    let [provider, domain] = ["verbs", "mlx5_0"].map(|name| Some(name.to_string()));
    let options = OfiOptions { provider, domain, address: Some(Ipv4Addr::LOCALHOST.into()) };
    assert_eq!(network.transport, Transport::Ofi(options));
    let garbage = format!("{open}{OFI}").replace("\"127.0.0.1\"", "\"mlx5_0\"");
    let error = Settings::from_toml("x", &garbage).effective().unwrap().config().unwrap_err().to_string();
    assert!(error.contains("network.fabric.address") && error.contains("mlx5_0"), "{error}");
    let both = FULL.replace("kind = \"tcp\"", "kind = \"ofi\"");
    assert!(matches!(&errors(&both)[..], [error] if error.contains("encrypts nothing")), "{:?}", errors(&both));
    assert_eq!(network.seeds[1].to_string(), "b.example.org:7412");
    assert_eq!((network.listen.len(), network.silence), (2, Duration::from_secs(20)));
    assert_eq!(network.seed_count, Some(5));

    let at_home = FULL.split("[network]").next().unwrap();
    let config = Settings::from_toml("/etc/spindle/x.toml", at_home).effective().unwrap().config().unwrap();
    let durability = |name: &str| config.subgroups.iter().find(|subgroup| subgroup.name == name).unwrap().durability;
    let week = Duration::from_secs(7 * 24 * 3600);
    let log = LogSettings {
        segment_bytes: 1 << 20,
        bytes_max: Some(10 << 30),
        age_max: Some(week),
        wait_max: Duration::from_secs(300),
        restart_wait: Some(Duration::from_secs(3)),
    };
    assert_eq!(config.log, log);
    // More than half of three founders.
    assert_eq!(durability("orders"), Durability::Logged { copies: 2 });
    assert_eq!(durability("ticks"), Durability::InMemory);
    let [error] = &errors(&at_home.replace("data_dir = \"votes\"\n", ""))[..] else { panic!("one mistake") };
    let expected = "subgroup.orders.durability is \"logged\", and member.data_dir is not set: this member needs a directory \
                    for its log";
    assert!(error.ends_with(expected), "{error}");
    let [error] = &errors(&at_home.replace("members = [0, 2]", "order = \"fifo\""))[..] else { panic!("one mistake") };
    assert!(error.contains("orders") && error.contains("order"), "{error}");
    assert_eq!((config.group.as_str(), config.founders, config.id), ("prices", 3, Some(MemberId(7))));
    assert_eq!(config.runtime_dir, Some("/etc/spindle/run".into()));
    assert_eq!(config.suspect_after, Some(Duration::from_millis(300)));
    assert_eq!((config.gather_timeout, config.spin_for), (Duration::from_secs(5), Duration::from_millis(2)));
    assert_eq!(config.data_dir.as_deref(), Some(std::path::Path::new("/etc/spindle/votes")));
    let [ticks, orders] = &config.subgroups[..] else { panic!("{config:?}") };
    assert_eq!((ticks.name.as_str(), &ticks.senders, ticks.order), ("ticks", &Who::First(2), Order::Fifo));
    assert_eq!((ticks.window, ticks.message_bytes_max), (1000, 256));
    assert_eq!((&orders.members, orders.order), (&Who::Ranks(vec![0, 2]), Order::Total));
    assert_eq!((orders.window, orders.message_bytes_max), (1_001_600 / 1040, 1024));
}

#[test]
fn shards_share_the_founders_among_them() {
    let shard = |name: &str| format!("[[subgroup]]\nname = \"{name}\"\nmembers = \"shard 1, 2 to 3\"\n");
    let text = format!("[group]\nname = \"sharded\"\nfounders = 5\n{}{}[[subgroup]]\n", shard("kv/0"), shard("kv/1"));
    let config = Settings::from_toml("x.toml", &text).effective().unwrap().config().unwrap();
    let nodes = config.local().unwrap();
    let of = |name: &str| {
        let view = nodes[0].view();
        let spec = &view.subgroups[view.subgroup(name).unwrap().index()];
        assert_eq!(spec.members, spec.senders);
        spec.members.iter().map(|rank| rank.0).collect::<Vec<_>>()
    };
    assert_eq!((of("kv/0"), of("kv/1"), of("all")), (vec![0, 2, 4], vec![1, 3], vec![0, 1, 2, 3, 4]));
    let told = errors("[[subgroup]]\nmembers = \"shard 1, 3 to 2\"\nsenders = \"shard 1, 2 to 3\"\n");
    assert!(told.len() == 2 && told[0].contains("\"shard 0, 2 to 3\" (one of set 0"), "{told:#?}");
}

#[test]
fn nothing_said_gives_a_group_of_one_host() {
    let mut settings = Settings::new();
    settings.flag("group.name", "g", "GROUP");
    let effective = settings.effective().unwrap();
    let (config, plain) = (effective.config().unwrap(), Config::new("g", 1));
    assert_eq!((config.founders, config.id), (1, None));
    let dir = spindle_transport::rendezvous::RuntimeDir::default_path();
    assert_eq!((config.runtime_dir, effective.runtime_dir()), (Some(dir.clone()), dir));
    assert_eq!(config.suspect_after, plain.suspect_after);
    assert_eq!((config.gather_timeout, config.spin_for), (plain.gather_timeout, plain.spin_for));
    assert_eq!((config.subgroups.len(), config.subgroups[0].name.as_str()), (1, "all"));
    assert_eq!(format!("{:?}", config.subgroups), format!("{:?}", plain.subgroups));
    assert_eq!(config.object_bytes_max, plain.object_bytes_max);
    assert!(effective.network().is_none() && effective.warnings().is_empty());
    let error = Settings::new().effective().unwrap().config().unwrap_err().to_string();
    assert!(error.contains("SPINDLE_GROUP_NAME"), "{error}");
}

#[test]
fn a_late_answer_counts_and_the_others_are_remembered() {
    let mut settings =
        Settings::from_toml("x.toml", "[group]\nname = \"a\"\nfounders = 2\n[[subgroup]]\nname = \"s-1\"\n");
    // The order of the calls does not matter.
    settings.flag("group.founders", "5", "--founders");
    settings.flag("group.founders", "6", "--set");
    settings.variables(vars(&[
        ("SPINDLE_GROUP_FOUNDERS", "4"),
        ("SPINDLE_SUBGROUP_S_1_WINDOW", "9"),
        ("SPINDLE_NETWORK_LISTEN", "127.0.0.1:1"),
        ("SPINDLE_NETWORK_SEEDS", "a:1, b:2"),
        ("SPINDLE_NETWORK_SILENCE", "2s"),
        ("SPINDLE_GROUP_SUSPECT_AFTER", "5s"),
        ("SPINDLE_MEMBER_ID", ""),
        ("SPINDLE_CONFIG", "elsewhere.toml"),
        ("HOME", "/root"),
    ]));
    settings.flag("subgroup.s-1.message_bytes_max", "1k", "--max-message");
    let effective = settings.effective().unwrap();
    let told = |path: &str| {
        let entry = effective.entry(path).unwrap();
        let value = entry.value.as_ref().map(Value::to_string).unwrap_or_default();
        let hidden: Vec<String> = entry.hidden.iter().map(|(value, origin)| format!("{value} ({origin})")).collect();
        (value, entry.origin.to_string(), hidden.join(", "))
    };
    let is = |a: &str, b: &str, c: &str| (a.to_string(), b.to_string(), c.to_string());
    let hidden = "5 (flag --founders), 4 (variable SPINDLE_GROUP_FOUNDERS), 2 (x.toml:3)";
    assert_eq!(told("group.founders"), is("6", "flag --set", hidden));
    assert_eq!(told("group.name"), is("a", "x.toml:2", ""));
    let dir = spindle_transport::rendezvous::RuntimeDir::default_path();
    assert_eq!(told("runtime_dir"), is(&dir.display().to_string(), "default", ""));
    assert_eq!(told("subgroup.s-1.name"), is("s-1", "x.toml:5", ""));
    assert_eq!(told("subgroup.s-1.window"), is("9", "variable SPINDLE_SUBGROUP_S_1_WINDOW", ""));
    assert_eq!(told("subgroup.s-1.message_bytes_max"), is("1KiB", "flag --max-message", ""));
    assert_eq!(told("network.seeds"), is("a:1,b:2", "variable SPINDLE_NETWORK_SEEDS", ""));
    assert_eq!(told("member.id"), is("", "default", ""));
    let variable = |path: &str| effective.entry(path).unwrap().variable();
    assert_eq!(variable("subgroup.s-1.window").as_deref(), Some("SPINDLE_SUBGROUP_S_1_WINDOW"));
    assert_eq!(variable("subgroup.s-1.name"), None);
    let warnings: Vec<String> = effective.warnings().iter().map(Problem::to_string).collect();
    let silence = "variable SPINDLE_NETWORK_SILENCE: warning: network.silence is less than group.suspect_after";
    assert!(warnings.len() == 1 && warnings[0].starts_with(silence), "{warnings:#?}");
}

#[test]
fn a_value_that_is_wrong_or_can_not_be_read_is_not_said_to_be_missing() {
    let one = |text: &str, words: &str| {
        let told = problems(text);
        assert!(told.len() == 1 && told[0].contains(words), "{told:#?}");
    };
    let network = "[group]\nname = \"a\"\n[network]\nlisten = [\"nowhere\"]\n";
    one(network, "network.listen is [\"nowhere\"]");
    one(&format!("{network}insecure = true\n"), "network.listen is");
    one(&format!("{network}seeds = [\"a:1\"]\n"), "network.listen is");
    one("[group]\nname = \"no/name\"\n", "group.name is \"no/name\"");
    one("[group]\nname = a\n[network]\nseeds = [\"a:1\"]\n", "x.toml:2:8: ");
    one("[network]\nlisten = [\"127.0.0.1:1\"]\n", "warning: group.name is not set");
}

#[test]
fn everything_that_is_wrong_with_a_file_is_told_with_its_place() {
    let text = r#"
windw = 3

[group]
name = "no/slash"
fuonders = 3
founders = "three"
suspect_after = "5 parsecs"
spin_for = "1ms"

[member]
id = -1

[[subgroup]]
name = "a"
window = 0
message_bytes_max = "64kb"
senders = "2"

[[subgroup]]
name = "a"
order = "random"
xyzzy = 1

[network]
listen = "0.0.0.0:7411"
seeds = ["a", "b:7411"]
insecure = "yes"
tls = true

[netwrk]
"#;
    let expected = [
        "x.toml:2:1: unknown key \"windw\" outside of all tables; there are runtime_dir, group, member, subgroup, network",
        "x.toml:5:8: group.name is \"no/slash\"; allowed is 1 to 64 letters, digits, `.`, `_` and `-`, the first no `.`",
        "x.toml:6:1: unknown key \"fuonders\" in [group]; did you mean founders?",
        "x.toml:7:12: group.founders is \"three\"; allowed is a whole number from 1 to 1024",
        "x.toml:8:17: group.suspect_after is \"5 parsecs\"; allowed is a time such as \"300ms\" or \"2s\" (a bare number is \
         seconds), from 10ms to 365d, or \"never\"",
        "x.toml:9:1: unknown key \"spin_for\" in [group]; spin_for is a key of [member]",
        "x.toml:12:6: member.id is -1; allowed is a whole number from 0 to 9223372036854775807",
        "x.toml:16:10: subgroup.a.window is 0; allowed is a whole number from 1 to 1048576",
        "x.toml:17:21: subgroup.a.message_bytes_max is \"64kb\"; allowed is a number of bytes such as 10000 or \"64KiB\", up \
         to 64MiB",
        "x.toml:18:11: subgroup.a.senders is \"2\"; allowed is \"all\", \"first 2\", or ranks such as [0, 1]",
        "x.toml:21:8: there is a subgroup \"a\" already; give each a name of its own",
        "x.toml:22:9: subgroup.a.order is \"random\"; allowed is \"total\" or \"fifo\"",
        "x.toml:23:1: unknown key \"xyzzy\" in [[subgroup]]; there are name, members, senders, order, window, \
         message_bytes_max, durability, durable_copies",
        "x.toml:26:10: network.listen is \"0.0.0.0:7411\"; allowed is addresses such as [\"host:7411\", \"[::1]:7411\"]",
        "x.toml:27:9: network.seeds is [\"a\", \"b:7411\"]; allowed is addresses such as [\"host:7411\", \"[::1]:7411\"]",
        "x.toml:28:12: network.insecure is \"yes\"; allowed is true or false",
        "x.toml:29:7: network.tls is true; it is a table: write [network.tls]",
        "x.toml:31:2: unknown key \"netwrk\" outside of all tables; did you mean network?",
    ];
    assert_eq!(errors(text), expected);
}

#[test]
fn mistakes_of_syntax_are_told_with_the_others() {
    let told = errors("[group]\nname = \"a\nfounders = 0\n\n[member]\nid = = 3\n");
    assert!(told.len() >= 2, "{told:#?}");
    assert!(told[0].starts_with("x.toml:2:") && told.iter().any(|line| line.starts_with("x.toml:6:")), "{told:#?}");
    assert!(told.iter().any(|line| line.contains("group.founders is 0")), "{told:#?}");
    let told = errors("[group]\nname = \"a\"\nname = \"b\"\n");
    assert!(told.len() == 1 && told[0].starts_with("x.toml:3:1: ") && told[0].contains("duplicate"), "{told:#?}");
    let told = errors("[subgroup]\nname = \"a\"\n");
    assert!(told.len() == 1 && told[0].contains("write [[subgroup]]"), "{told:#?}");
    // Columns count characters.
    let told = errors("group = { \"näme\" = \"ä\", founders = 0 }");
    assert!(told[0].starts_with("x.toml:1:11: ") && told[1].starts_with("x.toml:1:36: "), "{told:#?}");
}

#[test]
fn invalid_variables_and_flags_are_named() {
    let mut settings = Settings::from_toml(
        "x.toml",
        "[group]\nname = \"a\"\n[[subgroup]]\nname = \"a-b\"\n[[subgroup]]\nname = \"a.b\"\n",
    );
    settings.variables(vars(&[
        ("SPINDLE_GROUP_FOUNDERS", "many"),
        ("SPINDLE_SUBGROUP_A_B_WINDOW", "3"),
        ("SPINDLE_GROUP_FOUNDER", "3"),
    ]));
    settings.flag("group.foundrs", "3", "--set group.foundrs");
    settings.flag("subgroup.c.window", "3", "--set subgroup.c.window");
    settings.flag("subgroup.a-b.name", "c", "--set subgroup.a-b.name");
    let Err(SettingsError::Wrong(problems)) = settings.effective() else { panic!("it went through") };
    let told: Vec<String> = problems.iter().map(Problem::to_string).collect();
    let expected = [
        "variable SPINDLE_GROUP_FOUNDERS: group.founders is \"many\"; allowed is a whole number from 1 to 1024",
        "variable SPINDLE_SUBGROUP_A_B_WINDOW: it could mean subgroup \"a-b\" or \"a.b\"; say it in a file",
        "variable SPINDLE_GROUP_FOUNDER: warning: no key has this variable; did you mean SPINDLE_GROUP_FOUNDERS?",
        "flag --set group.foundrs: there is no key \"group.foundrs\"; did you mean group.founders?",
        "flag --set subgroup.c.window: window is of no subgroup: there is no \"c\", but a-b, a.b",
        "flag --set subgroup.a-b.name: only a file names subgroups, in [[subgroup]]",
    ];
    assert_eq!(told, expected);

    let mut settings = Settings::new();
    settings.variables(vars(&[("SPINDLE_SUBGROUP_ALL_NAM", "a"), ("SPINDLE_SUBGROUP_ALL_NAME", "a")]));
    settings.flag("subgroup.all.nam", "a", "--set");
    let Err(SettingsError::Wrong(problems)) = settings.effective() else { panic!("it went through") };
    let told: Vec<String> = problems.iter().map(Problem::to_string).collect();
    let can_be_set = |told: &String| !told.contains("ALL_NAME?") && !told.contains("all.name?");
    assert!(told.len() == 4 && told.iter().all(can_be_set), "{told:#?}");
}

#[test]
fn values_that_do_not_go_together_are_told() {
    let network = |rest: &str| problems(&format!("[group]\nname = \"a\"\n[network]\n{rest}"));
    let told = network("listen = [\"0.0.0.0:1\"]\n");
    assert!(told.len() == 1 && told[0].starts_with("x.toml:4:10: 0.0.0.0:1 can be reached"), "{told:#?}");
    assert!(told[0].contains("network.insecure = true"), "{told:#?}");
    assert!(network("listen = [\"0.0.0.0:1\"]\ninsecure = true\n").is_empty());
    assert!(network("listen = [\"127.0.0.1:1\", \"localhost:1\"]\n").is_empty());
    let tls = "tls = { ca = \"a\", cert = \"b\", key = \"c\" }\n";
    assert!(network(&format!("listen = [\"0.0.0.0:1\"]\n{tls}")).is_empty());
    let told = network(&format!("listen = [\"0.0.0.0:1\"]\ninsecure = true\n{tls}"));
    assert!(told.len() == 1 && told[0].contains("warning: network.insecure has no effect"), "{told:#?}");
    let names = tls.replace("key", "identity = \"names\", key");
    let told = network(&format!("listen = [\"0.0.0.0:1\"]\n{names}"));
    assert!(matches!(&told[..], [one] if one.contains("and member.id is not set")), "{told:?}");
    let told = network("listen = [\"127.0.0.1:1\"]\ntls = { cert = \"b\" }\n");
    assert!(told.len() == 1 && told[0].contains("ca and key are missing"), "{told:#?}");
    let told = network("seeds = [\"a:1\"]\n");
    assert!(
        told.len() == 1 && told[0].starts_with("x.toml:4:9: network.seeds is set, and network.listen is not"),
        "{told:#?}"
    );
    let seeds = |seeds: &str, count: &str| {
        let mut told = network(&format!("listen = [\"127.0.0.1:1\"]\nseeds = [{seeds}]\nseed_count = {count}\n"));
        assert!(told.len() < 2, "{told:#?}");
        told.pop().unwrap_or_default()
    };
    assert_eq!(seeds("\"spindle:7411\"", "3"), "");
    assert_eq!(seeds("\"10.0.0.1:1\", \"10.0.0.2:1\"", "2"), "");
    let told = seeds("\"spindle:7411\"", "0");
    assert_eq!(told, "x.toml:6:14: network.seed_count is 0; allowed is a whole number from 1 to 1024");
    let told = seeds("\"a:1\", \"b:1\", \"c:1\"", "2");
    assert!(told.starts_with("x.toml:6:14: network.seed_count is 2: 3 seeds are named"), "{told}");
    let told = seeds("\"10.0.0.1:1\"", "3");
    assert!(told.starts_with("x.toml:6:14: network.seed_count is 3: the seeds are 1 addresses, and no name"), "{told}");
    let told = seeds("", "3");
    assert!(told.starts_with("x.toml:6:14: network.seed_count is 3: there are no seeds to count"), "{told}");
    let told = network("seed_count = 3\n");
    assert!(told.len() == 1 && told[0].contains("warning: network.seed_count has no effect without"), "{told:#?}");
    let told = network("insecure = true\n");
    assert!(told.len() == 1 && told[0].contains("warning: network.insecure has no effect without"), "{told:#?}");
    let told = network("listen = [\"127.0.0.1:1\"]\nfabric = { provider = \"verbs\" }\n");
    assert!(told.len() == 1 && told[0].contains("warning: network.fabric.provider has no effect"), "{told:#?}");
    let told = problems("[group]\nname = \"a\"\nsuspect_after = \"1min\"\n[network]\nlisten = [\"127.0.0.1:1\"]\n");
    assert!(told.len() == 1 && told[0].contains("less than group.suspect_after"), "{told:#?}");
    let told = problems("");
    assert_eq!(told, ["warning: group.name is not set here; whoever joins has to name the group"]);
    let told = problems("[group]\nname = \"a\"\n[[subgroup]]\nwindow = 1000000\nmessage_bytes_max = \"64MiB\"\n");
    assert!(told.len() == 1 && told[0].starts_with("x.toml:5:21: ") && told[0].contains("may be 1 to"), "{told:#?}");
    let told = problems("[group]\nname = \"a\"\n[[subgroup]]\nmembers = [0, 1]\nsenders = [2]\n");
    assert!(told.len() == 1 && told[0].starts_with("x.toml:5:11: "), "{told:#?}");
    // A group may have more members than created it.
    assert!(problems("[group]\nname = \"a\"\n[[subgroup]]\nsenders = [0, 4]\n").is_empty());
}

#[test]
fn files_that_are_not_there_are_told() {
    let text = "[group]\nname = \"a\"\n[network.tls]\nca = \"/\"\ncert = \"gone.pem\"\nkey = \"Cargo.toml\"\n";
    let effective = Settings::from_toml("x.toml", text).effective().unwrap();
    let told: Vec<String> = effective.check_files().iter().map(Problem::to_string).collect();
    assert_eq!(told.len(), 2, "{told:#?}");
    assert_eq!(told[0], "x.toml:4:6: network.tls.ca names /, which can't be read: it is no file");
    assert!(told[1].starts_with("x.toml:5:8: network.tls.cert names gone.pem, which"), "{told:#?}");
}

#[test]
fn the_rack_comes_from_the_topology_unless_it_is_given() {
    let dir = std::env::temp_dir().join(format!("spindle-topology-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let racks = dir.join("racks.toml");
    fs::write(&racks, "[racks]\nrow-1 = [\"10.0.1.0/24\"]\nrow-2 = [\"127.0.0.0/8\", \"host-z\"]\n").unwrap();
    let settings = |rest: &str| {
        let file = dir.join("x.toml").display().to_string();
        let text = format!("[group]\nname = \"a\"\n[network]\ntopology = \"racks.toml\"\n{rest}");
        Settings::from_toml(&file, &text)
    };
    let listen = "listen = [\"127.0.0.1:0\"]\n";
    let told = |settings: Settings| {
        let mut effective = settings.effective().unwrap();
        let checked: Vec<String> = effective.check_files().iter().map(Problem::to_string).collect();
        match effective.find_rack() {
            Ok(()) => {
                assert_eq!(checked, Vec::<String>::new());
                let entry = effective.entry("network.rack").unwrap();
                let said = entry.value.as_ref().map(Value::to_string);
                let rack = effective.config().unwrap().network.and_then(|network| network.rack);
                assert!(rack.is_none() || rack.map(|rack| rack.to_string()) == said);
                (said, entry.origin.to_string())
            }
            Err(error) => {
                assert_eq!(checked.len(), 1, "{checked:?}");
                assert_eq!(effective.config().unwrap_err().to_string(), error.to_string());
                (None, error.to_string())
            }
        }
    };
    let path = racks.display().to_string();
    assert_eq!(told(settings(listen)), (Some("row-2".to_string()), format!("{path}:3")));
    let (_, error) = told(settings("listen = [\"127.0.0.1:0\"]\nadvertise = \"10.0.3.9:7411\"\n"));
    assert!(
        error.contains("x.toml:4:12: ") && error.contains("none of its racks has this host, which is 10.0.3.9"),
        "{error}"
    );
    assert!(error.contains(&path) && error.contains("network.rack"), "{error}");
    let advertised = settings("listen = [\"127.0.0.1:0\"]\nadvertise = \"10.0.1.9:7411\"\n");
    assert_eq!(told(advertised).0.as_deref(), Some("row-1"));
    let mut said = settings(listen);
    said.variables(vars(&[("SPINDLE_NETWORK_RACK", "row-9")]));
    assert_eq!(told(said), (Some("row-9".to_string()), "variable SPINDLE_NETWORK_RACK".to_string()));
    fs::write(&racks, "[rack]\n").unwrap();
    let (_, error) = told(settings(listen));
    assert!(error.contains("racks.toml:1:2: unknown key \"rack\" in a topology; did you mean racks?"), "{error}");
    fs::write(&racks, b"[racks]\n\xff").unwrap();
    let (_, error) = told(settings(listen));
    assert!(error.contains("racks.toml:2:1: these bytes are no UTF-8"), "{error}");
    fs::remove_dir_all(&dir).unwrap();
    let (_, error) = told(settings(listen));
    assert!(error.contains("can't read") && error.contains("racks.toml"), "{error}");
    // If no rack and no topology is given, no rack is searched.
    let none = Settings::from_toml("x.toml", &format!("[group]\nname = \"a\"\n[network]\n{listen}"));
    assert_eq!(told(none), (None, "default".to_string()));
    let wrong =
        errors("[group]\nname = \"a\"\n[network]\nlisten = [\"127.0.0.1:0\"]\nrack = \"row 1\"\ntopology = 3\n");
    assert_eq!(wrong.len(), 2, "{wrong:?}");
    assert!(wrong[0].starts_with("x.toml:5:8: network.rack is \"row 1\"; allowed is 1 to 64 letters"), "{wrong:?}");
    assert!(wrong[1].starts_with("x.toml:6:12: network.topology is 3; allowed is a path"), "{wrong:?}");
}

#[test]
fn a_file_is_read_or_said_why_not() {
    let dir = std::env::temp_dir().join(format!("spindle-settings-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let path = dir.join("a.toml");
    fs::write(&path, "[group]\nname = \"a\"\nfounders = 2\n").unwrap();
    assert_eq!(Config::from_file(&path).unwrap().founders, 2);
    fs::write(&path, b"[group]\nname = \"a\"\n# \xff\n").unwrap();
    let error = Config::from_file(&path).unwrap_err().to_string();
    assert!(error.contains("a.toml:3:3: these bytes are no UTF-8"), "{error}");
    fs::write(&path, vec![b'\n'; 2 << 20]).unwrap();
    assert!(Config::from_file(&path).unwrap_err().to_string().contains("no configuration"));
    fs::remove_dir_all(&dir).unwrap();
    assert!(matches!(Config::from_file(&path), Err(SettingsError::Read { .. })));
}

#[test]
fn the_example_is_right_and_says_the_defaults() {
    let text = example();
    assert_eq!(problems(&text), Vec::<String>::new(), "{text}");
    let effective = Settings::from_toml("example.toml", &text).effective().unwrap();
    for entry in effective.entries().iter().filter(|entry| entry.origin != Origin::Standard) {
        let is_standard = entry.value.as_ref().unwrap().to_string() == entry.key.standard;
        assert!(is_standard || entry.path == "group.name", "{} is {:?}", entry.path, entry.value);
    }
    // A comment there can be turned into a setting.
    let comment = |line: &str| KEYS.iter().any(|key| line.starts_with(&format!("#{} = ", key.leaf())));
    let all: Vec<&str> = text.lines().map(|line| if comment(line) { &line[1..] } else { line }).collect();
    let all = all.join("\n").replace("insecure = false", "insecure = true");
    assert!(errors(&all).is_empty(), "{:#?}", errors(&all));
    let effective = Settings::from_toml("all.toml", &all).effective().unwrap();
    assert!(effective.entries().iter().all(|entry| entry.origin != Origin::Standard));
}

/// Returns a generator of pseudorandom numbers below a bound, the same each time.
pub(super) fn chance() -> impl FnMut(usize) -> usize {
    let mut state: u64 = 0x2545_f491_4f6c_dd1d;
    move |bound| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % bound
    }
}

#[test]
fn garbage_is_refused_and_nothing_else_happens() {
    let mut below = chance();
    let pieces =
        ["[", "]", "[[", "\"", "\n", "=", ",", "{", "}", ".", "#", "'", "\u{e4}", "\0", "\t", "1e9", "-", "nan", "0x"];
    let mut wrong = 0;
    for _ in 0..20_000 {
        let mut text: Vec<char> = FULL.chars().collect();
        for _ in 0..=below(6) {
            let at = below(text.len());
            match below(3) {
                0 => drop(text.drain(at..(at + 1 + below(20)).min(text.len()))),
                1 => drop(text.splice(at..at, pieces[below(pieces.len())].chars())),
                _ => {
                    let other = below(text.len());
                    text.swap(at, other);
                }
            }
        }
        let text: String = text.into_iter().collect();
        let lines = text.matches('\n').count() as u32 + 1;
        match Settings::from_toml("x.toml", &text).effective() {
            Ok(effective) => drop(effective.network()),
            Err(SettingsError::Wrong(problems)) => {
                wrong += 1;
                for problem in problems.iter().filter(|problem| problem.is_error) {
                    let Origin::File { line, column, .. } = problem.origin else { panic!("{problem} of {text}") };
                    assert!((1..=lines).contains(&line) && column >= 1, "{problem} of {text}");
                    assert!(!problem.message.contains('\n'), "{problem:?}");
                }
            }
            Err(error) => panic!("{error} of {text}"),
        }
    }
    assert!(wrong > 5_000, "only {wrong} were wrong");
}

#[test]
fn the_longest_files_take_no_longer_than_they_should() {
    // If every place were computed from the start of the file, these would take minutes.
    let many: String = (0..60_000).map(|i| format!("key{i} = 1\n")).collect();
    assert_eq!(errors(&many).len(), 100);
    let groups: String = (0..1024).map(|i| format!("[[subgroup]]\nname = \"s{i}\"\nwindow = 1\n")).collect();
    assert_eq!(Settings::from_toml("x.toml", &groups).effective().unwrap().subgroups().len(), 1024);
    assert!(errors(&format!("{groups}[[subgroup]]\nname = \"more\"\n"))[0].contains("at most 1024"));
}

#[test]
fn names_of_earlier_versions_are_errors_that_state_the_new_name() {
    let problems = |settings: Settings| settings.effective().unwrap_err().to_string();
    let file = Settings::from_toml("a.toml", "[group]\nname = \"g\"\nmembers = 3\n");
    let new = "group.members is called group.founders in this version";
    assert_eq!(problems(file), format!("a.toml:3:1: {new}; rename the key"));
    let named = || Settings::from_toml("a.toml", "[group]\nname = \"g\"\n");
    let mut variable = named();
    variable.variables([("SPINDLE_GROUP_MEMBERS".into(), "3".into())]);
    assert_eq!(
        problems(variable),
        "variable SPINDLE_GROUP_MEMBERS: the key is called group.founders in this version; set SPINDLE_GROUP_FOUNDERS instead"
    );
    let mut flag = named();
    flag.flag("group.members", "3", "--set");
    assert_eq!(problems(flag), format!("flag --set: {new}; use the new name"));
}
