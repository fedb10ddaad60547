//! The judgement of what members delivered: the order, the sums and the sent messages.
use super::{Breach, Judge, LaneKey, TOTAL, breach, follows};
use crate::chaos::record::{End, Record, digest, mix};

impl Judge {
    /// 4 and 8: all members that continue have delivered the same, and no member ever delivered
    /// more.
    fn leaves_list(&mut self, instance: u32, subgroup: u8) -> Result<(), Breach> {
        let (era, stream) = (self.era_of(instance)?, self.witnesses[&instance].streams[usize::from(subgroup)]);
        if stream.view == 0 || !TOTAL.contains(&subgroup) {
            return Ok(());
        }
        let list = self.lists.entry((era, stream.view, subgroup)).or_default();
        let (place, view) = (stream.place, stream.view);
        let (count, first) = *list.ended.get_or_insert((place, instance));
        if count != place {
            return breach(
                4,
                "atomicity",
                format!(
                    "process {instance} delivered {place} messages in view {view} of subgroup {subgroup}, and process {first} {count}"
                ),
            );
        }
        let known = list.base + list.entries.len() as u64;
        if known > count {
            return breach(
                8,
                "uniformity",
                format!(
                    "process {} delivered {known} messages in view {view} of subgroup {subgroup}, and process {instance}, which went on, {count}",
                    list.farthest
                ),
            );
        }
        Ok(())
    }

    /// 4, as applications see it: the state at the start of each view is the same at all members,
    /// including those that received it from others.
    pub(super) fn state(&mut self, instance: u32, subgroup: u8, view: u64, state: (u64, u64)) -> Result<(), Breach> {
        let era = self.era_of(instance)?;
        let (known, first) = *self.states.entry((era, view, subgroup)).or_insert((state, instance));
        if known == state {
            return Ok(());
        }
        let what = format!(
            "the state of process {instance} in subgroup {subgroup} is {:x} after {} messages when view {view} begins, and that of \
             process {first} {:x} after {}",
            state.0, state.1, known.0, known.1
        );
        breach(4, "atomicity", what)
    }

    pub(super) fn stretch(&mut self, instance: u32, subgroup: u8, view: u64) -> Result<(), Breach> {
        let was = self.witness(instance).streams[usize::from(subgroup)].view;
        if was > 0 && !follows(view, was) {
            let what = format!("process {instance} goes from view {was} to {view} in subgroup {subgroup}");
            return breach(5, "one view sequence", what);
        }
        self.leaves_list(instance, subgroup)?;
        let stream = &mut self.witness(instance).streams[usize::from(subgroup)];
        (stream.view, stream.place) = (view, 0);
        Ok(())
    }

    pub(super) fn batch(&mut self, instance: u32, subgroup: u8, time: u64) -> Result<(), Breach> {
        // A receiver's thread may lag behind its group.
        if subgroup.is_multiple_of(2) {
            self.overlap(instance, time)?;
        }
        let stream = &mut self.witness(instance).streams[usize::from(subgroup)];
        stream.time = time;
        let view = stream.view;
        if TOTAL.contains(&subgroup) {
            self.recovered_at(instance, time);
        }
        for gap in &mut self.gaps {
            if view > gap.view && time > gap.killed_at && gap.waiting.remove(&instance) {
                self.measured.push((time - gap.killed_at, gap.alone));
            }
        }
        self.gaps.retain(|gap| !gap.waiting.is_empty());
        Ok(())
    }

    pub(super) fn delivered(&mut self, instance: u32, record: &Record) -> Result<(), Breach> {
        let (sender, number) = ((record.b >> 32) as u32, record.c);
        let (subgroup, thread) = (record.subgroup, record.thread);
        let lane = (sender, subgroup, thread);
        self.was_sent(instance, lane, record)?;
        let view = self.witnesses[&instance].streams[usize::from(subgroup)].view;
        if view == 0 {
            return breach(5, "one view sequence", format!("process {instance} delivers outside of any view"));
        }
        let witness = self.witness(instance);
        witness.delivered += 1;
        let next = witness.next.entry(lane).or_insert(number);
        if *next != number {
            let next = *next;
            return breach(
                3,
                "no duplicate, no gap, FIFO",
                format!(
                    "process {instance} delivers message {number} of process {sender}, thread {thread}, in subgroup {subgroup} and \
                     view {view}, where {next} is next"
                ),
            );
        }
        *next += 1;
        if TOTAL.contains(&subgroup) { self.ordered(instance, record) } else { Ok(()) }
    }

    /// 2: no invention.
    fn was_sent(&mut self, instance: u32, lane: LaneKey, record: &Record) -> Result<(), Breach> {
        const NAME: &str = "no invention";
        let (sender, subgroup, thread) = lane;
        let number = record.c;
        let text = format!("message {number} of process {sender}, thread {thread}, in subgroup {subgroup}");
        let Some(from) = self.witnesses.get(&sender) else {
            return breach(2, NAME, format!("process {instance} delivers {text}, which never was"));
        };
        let (era, gone, id) = (from.era, from.gone, from.id);
        let here = self.era_of(instance)?;
        if era.is_some_and(|era| era != here) {
            return breach(2, NAME, format!("process {instance} delivers {text}, which is of another group"));
        }
        if digest(sender, subgroup, thread, number) as u32 != record.b as u32 {
            return breach(2, NAME, format!("process {instance} delivers {text} with other bytes"));
        }
        // A receiver may report a view before the polling thread does.
        let view = self.witnesses[&instance].streams[usize::from(subgroup)].view;
        let members = self.eras[here].views.get(&view);
        if let (Some(members), Some(id)) = (members, id)
            && members.get(usize::from(record.extra)) != Some(&id)
        {
            let what = format!("process {instance} delivers {text} as of rank {}, which is not {id}", record.extra);
            return breach(2, NAME, what);
        }
        let sent = self.sent.entry(lane).or_default();
        sent.heard = sent.heard.max(number + 1);
        if gone && number >= sent.reserved {
            return breach(2, NAME, format!("process {instance} delivers {text}, which it never sent"));
        }
        Ok(())
    }

    /// 1: total order.
    fn ordered(&mut self, instance: u32, record: &Record) -> Result<(), Breach> {
        const NAME: &str = "total order";
        let (era, subgroup) = (self.era_of(instance)?, record.subgroup);
        let stream = &mut self.witness(instance).streams[usize::from(subgroup)];
        let (view, place) = (stream.view, stream.place);
        stream.place += 1;
        let entry = mix(mix(record.a << 8 | u64::from(record.thread)) ^ record.b) ^ mix(record.c);
        let list = self.lists.entry((era, view, subgroup)).or_default();
        if let Some((count, first)) = list.ended
            && place >= count
        {
            return breach(
                8,
                "uniformity",
                format!(
                    "process {instance} delivers message {place} of view {view} in subgroup {subgroup}, and process {first} went on after {count}"
                ),
            );
        }
        let Some(at) = place.checked_sub(list.base) else {
            return breach(1, NAME, format!("process {instance} is behind all others in subgroup {subgroup}"));
        };
        match list.entries.get(at as usize) {
            None => {
                list.entries.push_back(entry);
                list.farthest = instance;
                Ok(())
            }
            Some(known) if *known == entry => Ok(()),
            Some(_) => breach(
                1,
                NAME,
                format!(
                    "delivery {place} of process {instance} in view {view} of subgroup {subgroup} is message {} of process {}, \
                     round {}, and elsewhere another",
                    record.c,
                    record.b >> 32,
                    record.a
                ),
            ),
        }
    }

    pub(super) fn ended(&mut self, instance: u32, end: u64) -> Result<(), Breach> {
        self.witness(instance).end = End::decode(end);
        match End::decode(end) {
            // Both kinds of end agreed on where the view ends.
            Some(End::Finished | End::Left) => {
                TOTAL.iter().try_for_each(|subgroup| self.leaves_list(instance, *subgroup))
            }
            _ => Ok(()),
        }
    }
}
