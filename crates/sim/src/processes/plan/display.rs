//! The text of a scene.
use super::{HostsScene, MS, ProcessPlace};
use spindle_core::{Order, Rule, SubgroupSpec};
use std::fmt;

impl fmt::Display for HostsScene {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let HostsScene { seed, hosts, is_afar, members, jitter_ns, loss_one_in, lost_percent, .. } = self;
        writeln!(
            f,
            "seed {seed}: {} places on {hosts} hosts, the group {} span them; {members} members found it; delays of {} to {} us and up to {} \
             more; a connection in {loss_one_in} packets breaks; {lost_percent} % are lost; a silence of {} ms is suspected; calm after {} ms{}",
            self.places.len(),
            if *is_afar { "may" } else { "does not" },
            self.delays.iter().flatten().min().unwrap_or(&0) / 1000,
            self.delays.iter().flatten().max().unwrap_or(&0) / 1000,
            jitter_ns / 1000,
            self.suspect_after_ns / MS,
            self.calm_ns / MS,
            if self.learns { "; joiners take over a state" } else { "" }
        )?;
        for (number, place) in self.places.iter().enumerate() {
            let ProcessPlace { host, start_ns, is_seed, is_durable, is_unreachable, is_observer } = place;
            writeln!(
                f,
                "place {number}: host {host}, from {} ms on{}{}{}{}",
                start_ns / MS,
                if *is_seed { ", a seed" } else { "" },
                if *is_durable { ", with a disk" } else { "" },
                if *is_unreachable { ", unreachable" } else { "" },
                if *is_observer { ", observing" } else { "" }
            )?;
        }
        for SubgroupSpec { name, member_rule, sender_rule, order, durability, .. } in &self.subgroups {
            let order = if *order == Order::Fifo { ", Fifo" } else { "" };
            let senders =
                if *sender_rule == Rule::Everyone { String::new() } else { format!(", {sender_rule:?} send") };
            let logged = durability.copies().map_or(String::new(), |_| format!(", {durability:?}"));
            writeln!(f, "subgroup {name}: {member_rule:?}{senders}{order}{logged}")?;
        }
        if let Some(ns) = self.recovers_ns {
            let what = if self.errs { "whom a member does not hear" } else { "what is lost" };
            writeln!(f, "an operator gives up {what} after {} ms", ns / MS)?;
        }
        if let Some(large) = &self.large {
            writeln!(f, "{large:?}")?;
        }
        if let Some(logs) = &self.logs {
            writeln!(f, "{logs:?}")?;
        }
        if self.epochs {
            writeln!(f, "subgroups go on that a change does not touch")?;
        }
        if let Some(slow) = &self.slow {
            writeln!(f, "{slow:?}")?;
        }
        self.differing.iter().try_for_each(|differing| writeln!(f, "{differing:?}"))?;
        self.faults.iter().try_for_each(|(at, fault)| writeln!(f, "{} ms: {fault:?}", at / MS))
    }
}
