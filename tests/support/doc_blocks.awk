# Cuts the fenced blocks out of a Markdown page. For the n-th block, counted in three digits, writes
#   DIR/n.info   its line in the page and what stands behind the opening fence
#   DIR/n.body   its lines, without the indentation of the fence
# usage: awk -v dir=DIR -f doc_blocks.awk PAGE
/^ *```/ && !inside {
    indent = match($0, /`/) - 1
    info = substr($0, indent + 4)
    n++
    stem = sprintf("%s/%03d", dir, n)
    print FNR, info > (stem ".info")
    close(stem ".info")
    printf "" > (stem ".body")
    inside = 1
    opened = FNR
    next
}
inside && /^ *``` *$/ {
    inside = 0
    close(stem ".body")
    next
}
inside {
    line = $0
    for (i = 0; i < indent && substr(line, 1, 1) == " "; i++)
        line = substr(line, 2)
    print line > (stem ".body")
}
END {
    if (inside) {
        printf "%s:%d: this block has no end\n", FILENAME, opened > "/dev/stderr"
        exit 1
    }
}
