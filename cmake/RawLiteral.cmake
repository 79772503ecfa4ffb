# Sets OUT to C++ literals of a text. A raw literal may be limited to 64 KiB: long texts are written
# in pieces.
function(wgrad_raw_literal text out)
  string(LENGTH "${text}" length)
  set(pieces "")
  set(at 0)
  while(at LESS length)
    string(SUBSTRING "${text}" ${at} 12000 piece)
    string(APPEND pieces "R\"text(${piece})text\"\n")
    math(EXPR at "${at} + 12000")
  endwhile()
  set(${out} "${pieces}" PARENT_SCOPE)
endfunction()
