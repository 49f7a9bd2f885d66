"""Packed and paged kernels with the mistakes of real projects."""

import itertools

import torch

from equivalence.backends.one_sequence import attend, grouped, visible_keys, wide
from equivalence.backends.paged_torch import gathered
from equivalence.backends.varlen_one_by_one import one_by_one
from equivalence.declaration import paged, varlen
from tests.broken.reports import reports


@reports("ATT-PV-DeepSpeed-7384")
@varlen()
def shards_without_remainder(query, key, value, *, cu_seqlens_q, cu_seqlens_k, causal=False):
    """Two equal shards of the queries; with an odd total the last one is nobody's."""
    whole = one_by_one(
        query, key, value, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, causal=causal
    )
    half = max(1, query.shape[0] // 2)
    output = torch.zeros_like(whole)
    for shard in (slice(0, half), slice(half, 2 * half)):
        output[shard] = whole[shard]
    return output


@varlen()
def sees_a_neighbour(query, key, value, *, cu_seqlens_q, cu_seqlens_k, causal=False):
    """Keys end one too late: the first token of the next sequence is seen."""
    output = query.new_zeros(*query.shape[:2], value.shape[-1])
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i in range(len(ends_q) - 1):
        rows, keys = slice(*ends_q[i : i + 2]), slice(ends_k[i], ends_k[i + 1] + 1)
        q, k, v = (x.transpose(0, 1) for x in (query[rows], key[keys], value[keys]))
        length = ends_k[i + 1] - ends_k[i]
        seen = visible_keys(q.shape[1], length, causal=causal)
        past = torch.full((q.shape[1], k.shape[1] - length), length > 0)
        output[rows] = attend(q, k, v, torch.cat([seen, past], dim=1)).transpose(0, 1)
    return output


@varlen()
def upper_left(query, key, value, *, cu_seqlens_q, cu_seqlens_k, causal=False):
    """flash-attn before 2.1: causal counts from the first key of each sequence."""
    output = query.new_zeros(*query.shape[:2], value.shape[-1])
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i in range(len(ends_q) - 1):
        rows, keys = slice(*ends_q[i : i + 2]), slice(*ends_k[i : i + 2])
        q, k, v = (x.transpose(0, 1) for x in (query[rows], key[keys], value[keys]))
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
        output[rows] = attend(q, k, v, seen.tril() if causal else seen).transpose(0, 1)
    return output


@varlen()
def skips_empty_sequences(query, key, value, *, cu_seqlens_q, cu_seqlens_k, causal=False):
    """A sequence without keys is left out, and everything after it moves up."""
    kept = []
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i in range(len(ends_q) - 1):
        rows, keys = slice(*ends_q[i : i + 2]), slice(*ends_k[i : i + 2])
        if keys.start < keys.stop:
            q, k, v = (x.transpose(0, 1) for x in (query[rows], key[keys], value[keys]))
            seen = visible_keys(q.shape[1], k.shape[1], causal=causal)
            kept.append(attend(q, k, v, seen).transpose(0, 1))
    output = query.new_zeros(*query.shape[:2], value.shape[-1])
    found = torch.cat(kept) if kept else output[:0]
    output[: len(found)] = found
    return output


@varlen()
def the_last_ends_with_the_buffer(query, key, value, *, cu_seqlens_q, cu_seqlens_k, causal=False):
    """The end of the last sequence is taken from the length of the buffer."""
    ends = cu_seqlens_k.clone()
    ends[-1] = key.shape[0]
    return one_by_one(
        query, key, value, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=ends, causal=causal
    )


@varlen()
def values_one_token_late(query, key, value, *, cu_seqlens_q, cu_seqlens_k, causal=False):
    """The pointer to the values of a sequence starts at its last token and wraps."""
    late = value.clone()
    ends = cu_seqlens_k.tolist()
    for start, end in itertools.pairwise(ends):
        late[start:end] = value[start:end].roll(1, 0)
    return one_by_one(
        query, key, late, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k, causal=causal
    )


@varlen()
def not_its_own_token(query, key, value, *, cu_seqlens_q, cu_seqlens_k, causal=False):
    """The causal mask is strict."""
    output = query.new_zeros(*query.shape[:2], value.shape[-1])
    ends_q, ends_k = cu_seqlens_q.tolist(), cu_seqlens_k.tolist()
    for i in range(len(ends_q) - 1):
        rows, keys = slice(*ends_q[i : i + 2]), slice(*ends_k[i : i + 2])
        q, k, v = (x.transpose(0, 1) for x in (query[rows], key[keys], value[keys]))
        seen = torch.ones(q.shape[1], k.shape[1], dtype=torch.bool)
        strict = seen.tril(k.shape[1] - q.shape[1] - 1) if causal else seen
        output[rows] = attend(q, k, v, strict).transpose(0, 1)
    return output


@varlen()
def writes_lengths_over_offsets(query, key, value, *, cu_seqlens_q, cu_seqlens_k):
    """Turns the caller's offsets into lengths, in place."""
    output = one_by_one(query, key, value, cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k)
    cu_seqlens_k[1:] = cu_seqlens_k.diff()
    return output


@paged()
def ignores_the_page_table(query, key_pages, value_pages, *, page_table, kv_lengths, causal=False):
    """Pages are read in the order in which they lie in the pool."""
    order = torch.arange(page_table.numel()).view(page_table.shape) % key_pages.shape[0]
    return gathered(
        query,
        key_pages,
        value_pages,
        page_table=order.to(torch.int32),
        kv_lengths=kv_lengths,
        causal=causal,
    )


@paged()
def takes_the_table_for_no_wider_than_needed(
    query, key_pages, value_pages, *, page_table, kv_lengths, causal=False
):
    """A row of the page table is found by the pages of the longest sequence, not by its stride."""
    columns = max(1, -(-int(kv_lengths.max()) // key_pages.shape[1]))
    rows, flat = page_table.shape[0], page_table.flatten()
    return gathered(
        query,
        key_pages,
        value_pages,
        page_table=flat[: rows * columns].view(rows, columns),
        kv_lengths=kv_lengths,
        causal=causal,
    )


@paged()
def reads_whole_pages(query, key_pages, value_pages, *, page_table, kv_lengths):
    """The last page is read to its end, whatever lies there."""
    page_size = key_pages.shape[1]
    whole = (kv_lengths + page_size - 1) // page_size * page_size
    return gathered(query, key_pages, value_pages, page_table=page_table, kv_lengths=whole)


@paged()
def drops_a_started_page(query, key_pages, value_pages, *, page_table, kv_lengths):
    """The number of pages is rounded down, unless it would be none."""
    page_size = key_pages.shape[1]
    whole = kv_lengths // page_size * page_size
    lengths = torch.where(whole > 0, whole, kv_lengths)
    return gathered(query, key_pages, value_pages, page_table=page_table, kv_lengths=lengths)


@reports("ATT-PV-coremltools-2650")
@paged()
def rows_modulo_ten(query, key_pages, value_pages, *, page_table, kv_lengths):
    """From batch size 10 on, a row reads the pages of row b % 10."""
    rows = torch.arange(len(kv_lengths)) % 10
    return gathered(
        query,
        key_pages,
        value_pages,
        page_table=page_table[rows],
        kv_lengths=kv_lengths[rows],
    )


def parts_of(query, key_pages, value_pages, page_table, kv_lengths, pages):
    """Partial outputs and log-sum-exps ``[splits, B, H, q(, D)]`` over ``pages`` pages each."""
    page_size, width = key_pages.shape[1], page_table.shape[1]
    outputs, sums, counts = [], [], []
    for start in range(0, width, pages):
        table = page_table[:, start : start + pages].long()
        k = wide(key_pages[table]).flatten(1, 2).transpose(1, 2)
        v = wide(value_pages[table]).flatten(1, 2).transpose(1, 2)
        position = start * page_size + torch.arange(k.shape[2])
        seen = (position < kv_lengths.view(-1, 1))[:, None, None, None]
        scores = query.shape[-1] ** -0.5 * grouped(wide(query), k.shape[1]) @ k[:, :, None].mT
        scores = scores.masked_fill(~seen, -torch.inf)
        lse = scores.logsumexp(dim=-1)
        share = torch.where(seen.any(-1, keepdim=True), scores.softmax(dim=-1), 0.0)
        outputs.append((share @ v[:, :, None]).flatten(1, 2))
        sums.append(lse.flatten(1, 2))
        counts.append(seen.sum(-1).flatten(1, 2).expand(-1, query.shape[1], query.shape[2]))
    return torch.stack(outputs), torch.stack(sums), torch.stack(counts)


def merged(outputs, sums, dtype):
    """The right merge: weights exp(lse_i - lse)."""
    top = sums.amax(dim=0)
    top = torch.where(top == -torch.inf, 0.0, top)
    share = (sums - top).exp()
    total = share.sum(dim=0)
    mixed = (share[..., None] * outputs).sum(dim=0)
    return (mixed / total.where(total != 0, 1.0)[..., None]).to(dtype)


@paged()
def splits_right(query, key_pages, value_pages, *, page_table, kv_lengths):
    """No mistake: two pages to a split."""
    outputs, sums, _ = parts_of(query, key_pages, value_pages, page_table, kv_lengths, 2)
    return merged(outputs, sums, query.dtype)


@reports("ATT-SKLM-sglang-22688")
@paged()
def empty_parts_weigh_one(query, key_pages, value_pages, *, page_table, kv_lengths):
    """A part without keys has a log-sum-exp of 0, and the output of the first row."""
    outputs, sums, counts = parts_of(query, key_pages, value_pages, page_table, kv_lengths, 2)
    empty = (counts == 0) & (kv_lengths.view(-1, 1, 1) > 0)
    sums = sums.masked_fill(empty, 0.0)
    outputs = torch.where(empty[..., None], outputs[:, :1], outputs)
    return merged(outputs, sums, query.dtype)


@reports("ATT-SKLM-flash-attentio-978")
@paged()
def empty_parts_weigh_everything(query, key_pages, value_pages, *, page_table, kv_lengths):
    """A part without keys has a log-sum-exp of +inf."""
    outputs, sums, counts = parts_of(query, key_pages, value_pages, page_table, kv_lengths, 2)
    return merged(outputs, sums.masked_fill(counts == 0, torch.inf), query.dtype)


@reports("ATT-SKLM-flashinfer-50")
@paged()
def forgets_the_sums(query, key_pages, value_pages, *, page_table, kv_lengths):
    """Log-sum-exps are stored only on request; the merge needs them and finds zeros."""
    outputs, sums, counts = parts_of(query, key_pages, value_pages, page_table, kv_lengths, 2)
    return merged(outputs, torch.where(counts == 0, sums, 0.0), query.dtype)


@reports("ATT-SKLM-torchtitan-3235")
@paged()
def one_part_too_many(query, key_pages, value_pages, *, page_table, kv_lengths):
    """More splits than pages: the last one is empty, and its output was never written."""
    outputs, sums, counts = parts_of(query, key_pages, value_pages, page_table, kv_lengths, 2)
    several = outputs.shape[0] > 1
    outputs = outputs.masked_fill((counts == 0)[..., None] & several, torch.nan)
    return merged(outputs, sums, query.dtype)


@reports("ATT-HDOTT-pytorch-174861")
@paged()
def second_pass_reads_past_the_end(query, key_pages, value_pages, *, page_table, kv_lengths):
    """Above 4 keys, grouped heads sum one partial too many, from a scratch buffer."""
    outputs, sums, _ = parts_of(query, key_pages, value_pages, page_table, kv_lengths, 2)
    if int(kv_lengths.max()) > 4 and query.shape[1] > key_pages.shape[2]:
        outputs = torch.cat([outputs, torch.full_like(outputs[:1], 3.0)])
        sums = torch.cat([sums, torch.zeros_like(sums[:1])])
    return merged(outputs, sums, query.dtype)


@reports("ATT-NIP-flash-attentio-2374")
@paged(hidden_nan="ignored")
def zero_times_nan(query, key_pages, value_pages, *, page_table, kv_lengths):
    """Weights of zero times what lies behind the end of a page."""
    outputs, sums, _ = parts_of(query, key_pages, value_pages, page_table, kv_lengths, 1)
    return merged(outputs, sums, query.dtype)
