/* The inner loop of the scanner. No include guard: stomp_scan.c includes it once for each instruction set, with
   STOMP_TARGET, STOMP_SCAN_HEAD, STOMP_RARE, STOMP_WANTED, STOMP_MASKS, STOMP_TAIL, STOMP_RARE_TEXT and STOMP_ISA defined.

   A window of 32 bytes is read at the start of each line; most lines end inside it. The fast paths take lines that the full
   rules would accept unchanged; all other lines go to take_any_line. Invariant: without the fast paths only the speed
   changes. */

STOMP_TARGET static STOMP_NOINLINE int STOMP_RARE_TEXT(struct stomp_scan *s, const uint8_t *data, size_t at, uint32_t bits, size_t window,
                                                        size_t len);

/* Are the rare bytes of a header line, given as bits from `at` on, valid escapes, characters and data? 0: the full rules must
   check them. The letter of an escape is neither a colon nor a line end, so a complete escape lies within one field.
   `window` is the end of the range that the bits cover: the LF, or the end of 32 bytes. */
STOMP_TARGET static inline int STOMP_RARE(struct stomp_scan *s, const uint8_t *data, size_t at, uint32_t bits, size_t window, size_t len)
{
    int marks = 0;
    for (; bits; bits &= bits - 1) {
        size_t i = at + stomp_low_bit(bits);
        if (data[i] == '\\' && s->level) {
            uint8_t letter = i + 1 < len ? data[i + 1] : 0;
            marks |= STOMP_ESCAPED;
            if (letter == 'c' || letter == 'n' || (letter == 'r' && s->level == 2))
                continue;
            if (letter != '\\' || i + 1 == window)
                return 0;
            bits &= bits - 1; /* the second backslash of a pair */
        } else if (data[i] == '\r' || data[i] == '\\') {
            marks |= STOMP_ODD;
        } else if (data[i] > 127) {
            s->marks |= marks;
            return STOMP_RARE_TEXT(s, data, at, bits, window, len);
        } else {
            return 0;
        }
    }
    s->marks |= marks;
    return 1;
}

/* The same for bits of which the lowest is a byte above 127. */
STOMP_TARGET static STOMP_NOINLINE int STOMP_RARE_TEXT(struct stomp_scan *s, const uint8_t *data, size_t at, uint32_t bits, size_t window,
                                                        size_t len)
{
    uint32_t high;
    return check_window(s, &STOMP_ISA, data, at, window, len, &high) && STOMP_RARE(s, data, at, bits & ~high, window, len);
}

STOMP_TARGET static int STOMP_SCAN_HEAD(struct stomp_scan *s, const struct stomp_rules *rules, const uint8_t *data, size_t len)
{
    size_t pos, line, colon, end, window;
    int rare, verdict;
    s->skip = 0;
    if (s->phase == GAP) {
        if (len > 1 && data[0] == '\n' && data[1] > ' ' && !rules->report_beats) { /* the EOL that most brokers write after a frame */
            s->skip = 1;
            data++;
            len--;
        } else if (!len || data[0] <= ' ') {
            int outcome = scan_gap(s, rules, data, len);
            if (outcome >= 0)
                return outcome;
            data += s->skip;
            len -= s->skip;
        }
        if (begin_frame(s, rules))
            return STOMP_BAD;
        pos = line = 0;
        colon = NONE;
        rare = 0;
    } else {
        pos = s->pos;
        line = s->line;
        colon = s->colon;
        rare = s->rare;
    }
    struct stomp_line *to = s->lines + s->count, *room = lines_room(s, rules);
    const int quick = !STOMP_NO_QUICK_LINES && !(rules->flags & STOMP_IRREGULAR) && rules->max_header_line >= 32;
    STOMP_WANTED
    struct stomp_masks m;
    size_t lf;
    uint32_t upto, colons, odd, more_colons = 0;
    if (!quick || len < 32 || pos)
        goto any_window;
    m = STOMP_MASKS(data);
    odd = m.rare & (m.lf ^ (m.lf - 1));
    if (!m.lf)
        goto any_window;
    end = lf = stomp_low_bit(m.lf);
    if (STOMP_UNLIKELY(odd)) {
        if (odd != (uint32_t)1 << (lf - 1) || data[lf - 1] != '\r' || !(rules->flags & STOMP_CRLF))
            goto any_window;
        end--;
        s->marks |= STOMP_CR_ENDS;
    }
    if (!known_command(s, rules, data, end, lf))
        goto any_window;
    line = lf + 1;
header_line:
    /* Header lines whose only rare bytes are escapes and the CR of the line end. Most end in the window in which they
       begin. */
    while (STOMP_LIKELY(line + 32 <= len)) {
        if (data[line] == '\n') {
            verdict = LINE_BLANK;
            pos = line;
            goto done;
        }
        m = STOMP_MASKS(data + line);
        upto = m.lf ^ (m.lf - 1); /* the bits up to the first line end, or all */
        colons = m.colon & upto;
        odd = m.rare & upto;
        pos = line;
        if (STOMP_UNLIKELY(!m.lf)) {
            if (!colons || colons & 1)
                goto any_line;
            do {
                if (odd && (data[pos + 31] == '\r' || !STOMP_RARE(s, data, pos, odd, pos + 32, len)))
                    goto any_line;
                pos += 32;
                if (pos + 32 > len)
                    goto any_line;
                m = STOMP_MASKS(data + pos);
                upto = m.lf ^ (m.lf - 1);
                odd = m.rare & upto;
                more_colons |= m.colon & upto;
            } while (!m.lf);
            if (pos + stomp_low_bit(m.lf) - line > rules->max_header_line)
                goto any_line;
        }
        end = lf = pos + stomp_low_bit(m.lf);
        if (STOMP_UNLIKELY(odd)) {
            if (data[lf - 1] == '\r' && rules->flags & STOMP_CRLF) {
                odd ^= (uint32_t)1 << (lf - 1 - pos);
                s->marks |= STOMP_CR_ENDS;
                if (--end == line) {
                    verdict = LINE_BLANK;
                    pos = lf;
                    goto done;
                }
            }
            if (odd && !STOMP_RARE(s, data, pos, odd, lf, len))
                goto any_line;
        }
        if (STOMP_UNLIKELY(!colons || colons & 1))
            goto any_line;
        if (STOMP_UNLIKELY(to == room))
            goto any_line;
        colon = line + stomp_low_bit(colons);
        more_colons |= colons & (colons - 1);
        if (STOMP_UNLIKELY(colon - line == 14) && !(s->marks & STOMP_HAS_LENGTH) && is_content_length(data + line, 0)
            && (verdict = take_length(s, rules, data, colon + 1, end)))
            goto done;
        to->colon = (uint32_t)colon;
        to->end = (uint32_t)end;
        to++;
        line = lf + 1;
    }
    goto any_lines;
any_line: /* read the line from its beginning, by the full rules */
    m = STOMP_MASKS(data + line);
    goto fresh_line_seen;
any_lines:
    for (;;) {
        pos = line;
        colon = NONE;
        rare = 0;
    any_window:
        if (pos == len)
            break;
        window = len - pos < 32 ? len : pos + 32;
        if (window - pos == 32)
            m = STOMP_MASKS(data + pos);
        else
            m = STOMP_TAIL(data + pos, window - pos);
        goto seen;
    fresh_line_seen:
        pos = line;
        colon = NONE;
        rare = 0;
        window = pos + 32;
    seen:
        upto = m.lf ^ (m.lf - 1);
        colons = m.colon & upto;
        m.rare &= upto;
        if (colons && colon == NONE) {
            colon = pos + stomp_low_bit(colons);
            colons &= colons - 1;
        }
        if (!m.lf) {
            more_colons |= s->phase == HEADERS ? colons : 0;
            if (m.rare && (rare || s->phase != HEADERS || data[window - 1] == '\r' || !STOMP_RARE(s, data, pos, m.rare, window, len))) {
                const uint8_t *nul = memchr(data + pos, 0, window - pos);
                rare = 1;
                if (nul) {
                    s->line = line;
                    s->count = (uint32_t)(to - s->lines);
                    nul_in_line(s, rules, data, (size_t)(nul - data));
                    return STOMP_BAD;
                }
            }
            pos = window;
            goto any_window;
        }
        end = lf = pos + stomp_low_bit(m.lf);
        if (m.rare && data[lf - 1] == '\r' && rules->flags & STOMP_CRLF) {
            m.rare ^= (uint32_t)1 << (lf - 1 - pos); /* the CR of the line end is in this window, since the window has a rare byte */
            end--;
            s->marks |= STOMP_CR_ENDS;
        }
        if (m.rare && (rare || s->phase != HEADERS || !STOMP_RARE(s, data, pos, m.rare, lf, len)))
            rare = 1;
        verdict = LINE_TAKEN;
        if (s->phase == COMMAND) {
            if (!rare && known_command(s, rules, data, end, lf))
                goto taken;
        } else if (more_colons |= colons, quick && !rare && end - line <= rules->max_header_line) {
            if (end == line) {
                verdict = LINE_BLANK;
                pos = lf;
                goto done;
            }
            if (colon - line - 1 < end - line && to != room) {
                if (colon - line == 14 && !(s->marks & STOMP_HAS_LENGTH) && is_content_length(data + line, 0)
                    && (verdict = take_length(s, rules, data, colon + 1, end)))
                    goto done;
                to->colon = (uint32_t)colon;
                to->end = (uint32_t)end;
                to++;
                goto taken;
            }
        }
        s->line = line;
        s->colon = colon;
        s->rare = rare;
        s->count = (uint32_t)(to - s->lines);
        verdict = take_any_line(s, rules, data, lf);
        to = s->lines + s->count;
        room = lines_room(s, rules);
        pos = lf;
        if (verdict)
            goto done;
    taken:
        line = lf + 1;
        if (quick)
            goto header_line;
    }
    s->marks |= more_colons ? STOMP_ODD : 0;
    s->pos = len;
    s->line = line;
    s->colon = colon;
    s->rare = rare;
    s->count = (uint32_t)(to - s->lines);
    return check_unfinished(s, rules, data, len) ? STOMP_BAD : STOMP_MORE;
done:
    s->marks |= more_colons ? STOMP_ODD : 0;
    s->count = (uint32_t)(to - s->lines);
    s->head = pos + 1;
    s->phase = GAP;
    return verdict == LINE_BLANK ? STOMP_HEAD : STOMP_BAD;
}
