//! The settings that all members of a group share, as text: written from a [`Config`], and taken
//! over from a running group.
//!
//! The keys are those of a configuration file. The text of `subgroup` lists the names of the
//! subgroups in their order. In names, bytes other than ASCII letters, digits, `.`, `_` and `-` are
//! written as `%` with two hexadecimal digits.
use super::network::Transport;
use super::{Config, Subgroup, Who};
use spindle_core::control::{ANY_CONFIG, SharedSettings};
use spindle_core::{Durability, Order};
use std::collections::BTreeMap;
use std::time::Duration;

/// The key of the list of subgroups.
pub(crate) const SUBGROUPS: &str = "subgroup";
const SUSPECT_AFTER: &str = "group.suspect_after";
const OBJECT_BYTES_MAX: &str = "group.object_bytes_max";
const CLOCK_SKEW_MAX: &str = "group.clock_skew_max";
const FABRIC: &str = "network.fabric.kind";
const PROVIDER: &str = "network.fabric.provider";
/// The durability of a subgroup that keeps logs. One that does not has no such setting.
pub(crate) const LOGGED: &str = "logged";
/// As above, of a subgroup that delivers only what is durable.
pub(crate) const LOGGED_BEFORE_DELIVERY: &str = "logged-before-delivery";

/// The units of times, in nanoseconds, from the largest.
const UNITS: [(u128, &str); 4] = [(1_000_000_000, "s"), (1_000_000, "ms"), (1_000, "us"), (1, "ns")];

/// Returns the key of a subgroup's setting.
pub(crate) fn key_of(subgroup: &str, leaf: &str) -> String {
    format!("{SUBGROUPS}.{}.{leaf}", escape(subgroup))
}

impl Config {
    /// Returns the settings that all members of a group must share, with the keys of a
    /// configuration file.
    pub fn shared_settings(&self) -> SharedSettings {
        write(self)
    }

    /// Returns the digest that an observer with this configuration sends.
    pub(crate) fn observer_digest(&self) -> u64 {
        if self.subgroups.is_empty() { ANY_CONFIG } else { self.shared_settings().digest() }
    }
}

/// Returns the shared settings of a configuration.
fn write(config: &Config) -> SharedSettings {
    let names: Vec<String> = config.subgroups.iter().map(|subgroup| escape(&subgroup.name)).collect();
    let (fabric, provider) = match config.network.as_ref().map(|network| &network.transport) {
        None => ("none", None),
        Some(Transport::Tcp) => ("tcp", None),
        Some(Transport::Ofi(options)) => ("ofi", options.provider.as_deref()),
    };
    let mut pairs = vec![
        (SUSPECT_AFTER.to_string(), write_limit(config.suspect_after)),
        (CLOCK_SKEW_MAX.to_string(), write_limit(config.clock_skew_max)),
        (OBJECT_BYTES_MAX.to_string(), config.object_bytes_max.to_string()),
        (SUBGROUPS.to_string(), names.join(",")),
        (FABRIC.to_string(), fabric.to_string()),
    ];
    pairs.extend(provider.map(|provider| (PROVIDER.to_string(), escape(provider))));
    for subgroup in &config.subgroups {
        let of = |leaf, value: String| (key_of(&subgroup.name, leaf), value);
        let order = if subgroup.order == Order::Fifo { "fifo" } else { "total" };
        pairs.extend([
            of("members", write_who(&subgroup.members)),
            of("senders", write_who(&subgroup.senders)),
            of("order", order.to_string()),
            of("window", subgroup.window.to_string()),
            of("message_bytes_max", subgroup.message_bytes_max.to_string()),
        ]);
        if let Some(copies) = subgroup.durability.copies() {
            let word = if subgroup.durability.delivers_durable() { LOGGED_BEFORE_DELIVERY } else { LOGGED };
            pairs.push(of("durability", word.to_string()));
            pairs.push(of("durable_copies", copies.to_string()));
        }
    }
    SharedSettings::new(pairs)
}

/// Returns this configuration with the shared settings of a group; `None` if a value has no
/// meaning. The network stays as it is.
pub(crate) fn take_over(config: &Config, settings: &SharedSettings) -> Option<Config> {
    let values: BTreeMap<&str, &str> = settings.pairs().collect();
    let value = |key: &str| values.get(key).copied();
    let suspect_after = read_limit(value(SUSPECT_AFTER)?)?;
    let clock_skew_max = read_limit(value(CLOCK_SKEW_MAX)?)?;
    let object_bytes_max = value(OBJECT_BYTES_MAX)?.parse().ok()?;
    let subgroup = |name: &str| {
        let name = unescape(name)?;
        let of = |leaf| value(&key_of(&name, leaf));
        let order = match of("order")? {
            "fifo" => Order::Fifo,
            "total" => Order::Total,
            _ => return None,
        };
        let durability = match (of("durability"), of("durable_copies")) {
            (None, None) => Durability::InMemory,
            (Some(LOGGED), Some(copies)) => Durability::Logged { copies: copies.parse().ok()? },
            (Some(LOGGED_BEFORE_DELIVERY), Some(copies)) => {
                Durability::LoggedBeforeDelivery { copies: copies.parse().ok()? }
            }
            _ => return None,
        };
        Some(Subgroup {
            members: read_who(of("members")?)?,
            senders: read_who(of("senders")?)?,
            order,
            window: of("window")?.parse().ok()?,
            message_bytes_max: of("message_bytes_max")?.parse().ok()?,
            durability,
            name,
        })
    };
    let subgroups = value(SUBGROUPS)?.split(',').map(subgroup).collect::<Option<_>>()?;
    let taken = Config { suspect_after, clock_skew_max, object_bytes_max, subgroups, ..config.clone() };
    // A text that this process would write in another way is not from one of this version.
    (write(&taken) == *settings).then_some(taken)
}

fn write_limit(limit: Option<Duration>) -> String {
    limit.map_or("never".to_string(), write_time)
}

fn read_limit(text: &str) -> Option<Option<Duration>> {
    if text == "never" { Some(None) } else { read_time(text).map(Some) }
}

fn write_time(time: Duration) -> String {
    let nanos = time.as_nanos();
    let (worth, unit) = UNITS.iter().find(|(worth, _)| nanos.is_multiple_of(*worth)).expect("a multiple of 1 ns");
    format!("{}{unit}", nanos / worth)
}

fn read_time(text: &str) -> Option<Duration> {
    let (digits, unit) = text.split_at(text.find(|c: char| !c.is_ascii_digit())?);
    let (worth, _) = UNITS.iter().find(|(_, name)| *name == unit)?;
    let nanos = digits.parse::<u128>().ok()?.checked_mul(*worth)?;
    let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    Some(Duration::new(u64::try_from(seconds).ok()?, rest as u32))
}

fn write_who(who: &Who) -> String {
    match who {
        Who::All => "all".to_string(),
        Who::First(count) => format!("first {count}"),
        Who::Ranks(ranks) => ranks.iter().map(u32::to_string).collect::<Vec<_>>().join(","),
        Who::Shard { set, least, most } => format!("shard {set}, {least} to {most}"),
    }
}

fn read_who(text: &str) -> Option<Who> {
    if text == "all" {
        return Some(Who::All);
    }
    if let Some(count) = text.strip_prefix("first ") {
        return count.parse().ok().map(Who::First);
    }
    if let Some(shard) = text.strip_prefix("shard ") {
        let (set, size) = shard.split_once(", ")?;
        let (least, most) = size.split_once(" to ")?;
        return Some(Who::Shard { set: set.parse().ok()?, least: least.parse().ok()?, most: most.parse().ok()? });
    }
    if text.is_empty() {
        return Some(Who::Ranks(vec![]));
    }
    text.split(',').map(|rank| rank.parse().ok()).collect::<Option<_>>().map(Who::Ranks)
}

fn escape(name: &str) -> String {
    let mut escaped = String::new();
    for byte in name.bytes() {
        match byte {
            b'.' | b'_' | b'-' => escaped.push(char::from(byte)),
            _ if byte.is_ascii_alphanumeric() => escaped.push(char::from(byte)),
            _ => escaped.push_str(&format!("%{byte:02x}")),
        }
    }
    escaped
}

fn unescape(text: &str) -> Option<String> {
    let (mut bytes, mut rest) = (Vec::new(), text.as_bytes());
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, tail) = rest.split_at_checked(2)?;
        bytes.push(u8::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()?);
        rest = tail;
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config() -> Config {
        let mut config = Config::new("g", 2);
        let subgroup = |name: &str, members, senders| Subgroup { members, senders, ..Subgroup::new(name) };
        config.subgroups = vec![
            Subgroup { order: Order::Fifo, window: 7, ..subgroup("z", Who::First(2), Who::Ranks(vec![0, 1])) },
            subgroup("a, b = ü\n%", Who::Shard { set: 1, least: 2, most: 3 }, Who::All),
            subgroup("", Who::Ranks(vec![]), Who::All),
            Subgroup { durability: Durability::Logged { copies: 2 }, ..subgroup("ledger", Who::All, Who::All) },
            Subgroup {
                durability: Durability::LoggedBeforeDelivery { copies: 1 },
                ..subgroup("orders", Who::All, Who::All)
            },
        ];
        config.suspect_after = Some(Duration::from_nanos(1_000_000_001));
        config
    }

    #[test]
    fn settings_that_are_taken_over_are_those_that_were_written() {
        for config in [config(), Config { suspect_after: None, ..Config::new("g", 1) }] {
            let settings = write(&config);
            let other = Config { id: Some(spindle_core::MemberId(7)), ..Config::new("other", 3) };
            let taken = take_over(&other, &settings).unwrap();
            assert_eq!(write(&taken), settings);
            assert_eq!((taken.id, taken.group.as_str(), taken.founders), (other.id, "other", 3));
            assert_eq!(format!("{:?}", taken.subgroups), format!("{:?}", config.subgroups));
        }
    }

    #[test]
    fn the_text_has_the_names_and_values_of_a_file() {
        let text = "group.clock_skew_max = 300s\n\
                    group.object_bytes_max = 1073741824\n\
                    group.suspect_after = 1s\n\
                    network.fabric.kind = none\n\
                    subgroup = all\n\
                    subgroup.all.members = all\n\
                    subgroup.all.message_bytes_max = 10000\n\
                    subgroup.all.order = total\n\
                    subgroup.all.senders = all\n\
                    subgroup.all.window = 100\n";
        assert_eq!(write(&Config::new("g", 1)).text(), text);
    }

    #[test]
    fn values_without_a_meaning_are_refused() {
        let settings = write(&config());
        let keys: Vec<String> = settings.pairs().map(|(key, _)| key.to_string()).collect();
        for key in keys.iter().filter(|key| !key.starts_with("network.")) {
            for bad in ["", "x", "-1", "99999999999999999999999", "first", "shard 1", "1 s", "%", "%zz", "01"] {
                let change = |(known, value): (&str, &str)| {
                    (known.to_string(), if known == key { bad.to_string() } else { value.to_string() })
                };
                let changed = SharedSettings::new(settings.pairs().map(change));
                let taken = take_over(&Config::new("g", 1), &changed);
                // Some texts have a meaning: no ranks, or the name of a subgroup.
                assert!(taken.is_none_or(|taken| write(&taken) == changed), "{key} = {bad:?}");
            }
            let without = settings.pairs().filter(|(known, _)| known != key);
            let without = SharedSettings::new(without.map(|(key, value)| (key.to_string(), value.to_string())));
            assert!(take_over(&Config::new("g", 1), &without).is_none(), "without {key}");
        }
    }
}
